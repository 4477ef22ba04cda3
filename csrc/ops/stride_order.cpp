#include "csrc/ops/stride_order.h"

#include <algorithm>
#include <numeric>

namespace npu {

StrideOrder stride_order(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  StrideOrder order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  // Of two dimensions with the same stride one has a single element. It counts
  // as the inner one, as in torch's memory formats.
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    if (strides[a] != strides[b]) return strides[a] > strides[b];
    return sizes[a] != 1 && sizes[b] == 1;
  });
  return order;
}

at::DimVector dense_strides(c10::IntArrayRef sizes, const StrideOrder& order) {
  at::DimVector strides(sizes.size());
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = stride;
    stride *= std::max<int64_t>(sizes[*dim], 1);
  }
  return strides;
}

}  // namespace npu
