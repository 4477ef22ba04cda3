#include "csrc/host/half_convolutions.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/sum.h>

#include "csrc/host/half_products.h"

namespace npu {
namespace {

// oneDNN computes bfloat16 on machines that have wide vectors, but not the
// transposed kind. `result`: of the forward pass. Where it has no elements,
// float's kernel refuses what those of narrow types accept.
bool goes_through_float(const at::Tensor& result, bool transposed) {
  if (result.numel() == 0) return false;
  if (result.scalar_type() == at::kHalf) return true;
  return result.scalar_type() == at::kBFloat16 &&
         (transposed || !has_wide_vectors());
}

at::Tensor to_float(const at::Tensor& t) { return t.to(at::kFloat); }

}  // namespace

bool half_convolution(const at::Tensor& input, const at::Tensor& weight,
                      std::optional<at::Tensor> bias,
                      const ConvolutionKind& kind, at::Tensor& out) {
  if (!goes_through_float(out, kind.transposed)) return false;
  if (bias && bias->defined()) bias = to_float(*bias);
  out.copy_(at::convolution(to_float(input), to_float(weight), bias,
                            kind.stride, kind.padding, kind.dilation,
                            kind.transposed, kind.output_padding, kind.groups));
  return true;
}

std::vector<at::Tensor> half_convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalIntArrayRef bias_sizes, const ConvolutionKind& kind,
    std::array<bool, 3> wanted) {
  if (!goes_through_float(grad, kind.transposed)) return {};
  std::vector<at::Tensor> found(3);
  if (wanted[0] || wanted[1])
    std::tie(found[0], found[1], std::ignore) = at::convolution_backward(
        to_float(grad), to_float(input), to_float(weight), bias_sizes,
        kind.stride, kind.padding, kind.dilation, kind.transposed,
        kind.output_padding, kind.groups, {wanted[0], wanted[1], false});
  if (wanted[2]) {
    std::vector<int64_t> all_but_channels;
    for (int64_t dim = 0; dim < grad.dim(); ++dim)
      if (dim != 1) all_but_channels.push_back(dim);
    found[2] = at::sum(grad, all_but_channels);
  }
  for (at::Tensor& gradient : found)
    if (gradient.defined()) gradient = gradient.to(grad.scalar_type());
  return found;
}

}  // namespace npu
