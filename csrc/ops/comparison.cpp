#include "csrc/ops/comparison.h"

#include <algorithm>

#include "csrc/torch/tensor_flags.h"

namespace npu {

Comparison compare(const Inferred& inferred, const Inferred& actual,
                   bool smaller) {
  const Comparison differs{Verdict::kDiffers, {}};
  if (actual.outs.size() != inferred.outs.size() ||
      actual.written.size() != inferred.written.size())
    return differs;
  const auto fit = [&](const at::DimVector& sizes, const at::DimVector& to) {
    if (!smaller) return sizes == to;
    return std::equal(sizes.begin(), sizes.end(), to.begin(), to.end(),
                      [](int64_t a, int64_t b) { return !a == !b; });
  };
  Comparison agrees{Verdict::kAgrees, {}};
  bool as_inferred = true;
  // False: no order of the dimensions explains the strides.
  const auto add = [&](const auto& a, const auto& b) {
    StrideOrder& order = agrees.orders.emplace_back();
    const at::DimVector expected =
        smaller ? dense_strides(a.sizes, stride_order(b.sizes, b.strides))
                : b.strides;
    if (a.strides == expected) return true;
    order = stride_order(a.sizes, a.strides);
    as_inferred = false;
    return dense_strides(a.sizes, order) == a.strides;
  };
  for (size_t i = 0; i < actual.outs.size(); ++i) {
    const OutSpec &a = actual.outs[i], &b = inferred.outs[i];
    if (a.defined != b.defined || a.dtype != b.dtype ||
        !fit(a.sizes, b.sizes) || !add(a, b))
      return differs;
  }
  for (size_t i = 0; i < actual.written.size(); ++i) {
    const Written &a = actual.written[i], &b = inferred.written[i];
    if (a.argument != b.argument || !fit(a.sizes, b.sizes)) return differs;
    // A tensor that is not resized keeps its strides, whatever was inferred.
    if (!add(a, b)) agrees.orders.back().clear();
  }
  if (as_inferred) agrees.orders.clear();
  return agrees;
}

void lay_out(Inferred& inferred, const std::vector<StrideOrder>& orders) {
  auto order = orders.begin();
  for (OutSpec& out : inferred.outs) {
    if (!order->empty()) {
      out.strides = dense_strides(out.sizes, *order);
      out.contiguous = has_default_strides(out.sizes, out.strides);
    }
    ++order;
  }
  for (Written& written : inferred.written) {
    if (!order->empty()) written.strides = dense_strides(written.sizes, *order);
    ++order;
  }
}

}  // namespace npu
