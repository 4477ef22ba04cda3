#include "csrc/ops/judgement.h"

#include "csrc/torch/tensor_flags.h"

namespace npu {

Judgement judge(const Inferred& inferred, const Inferred& actual) {
  const Judgement differs{Verdict::kDiffers, {}};
  if (actual.outs.size() != inferred.outs.size() ||
      actual.written.size() != inferred.written.size())
    return differs;
  Judgement agrees{Verdict::kAgrees, {}};
  bool as_inferred = true;
  // False: no order of the dimensions explains the strides.
  const auto add = [&](at::IntArrayRef sizes, at::IntArrayRef strides,
                       at::IntArrayRef inferred_strides) {
    StrideOrder& order = agrees.orders.emplace_back();
    if (strides == inferred_strides) return true;
    order = stride_order(sizes, strides);
    as_inferred = false;
    return at::IntArrayRef(dense_strides(sizes, order)) == strides;
  };
  for (size_t i = 0; i < actual.outs.size(); ++i) {
    const OutSpec &a = actual.outs[i], &b = inferred.outs[i];
    if (a.defined != b.defined || a.dtype != b.dtype || a.sizes != b.sizes ||
        !add(a.sizes, a.strides, b.strides))
      return differs;
  }
  for (size_t i = 0; i < actual.written.size(); ++i) {
    const Written &a = actual.written[i], &b = inferred.written[i];
    if (!(a == b)) return differs;
    // A tensor that is not resized keeps its strides, whatever was inferred.
    if (!add(a.sizes, a.strides, b.strides)) agrees.orders.back().clear();
  }
  if (as_inferred) agrees.orders.clear();
  return agrees;
}

Judgement judge_smaller(const Inferred& inferred, const Inferred& smaller) {
  Inferred expected = inferred;  // with the smaller sizes
  const auto resize = [](at::DimVector& sizes, at::DimVector& strides,
                         const at::DimVector& to) {
    if (sizes.size() != to.size()) return;
    // No size follows from the others so that only one of them is none.
    for (size_t i = 0; i < sizes.size(); ++i)
      if ((sizes[i] == 0) != (to[i] == 0)) return;
    strides = dense_strides(to, stride_order(sizes, strides));
    sizes = to;
  };
  for (size_t i = 0; i < expected.outs.size() && i < smaller.outs.size(); ++i)
    resize(expected.outs[i].sizes, expected.outs[i].strides,
           smaller.outs[i].sizes);
  for (size_t i = 0; i < expected.written.size() && i < smaller.written.size();
       ++i)
    resize(expected.written[i].sizes, expected.written[i].strides,
           smaller.written[i].sizes);
  return judge(expected, smaller);
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
