// The steps of batch normalization over several processes (nn.SyncBatchNorm),
// composed of the device's own operators. Statistics are at least float32, as
// on CUDA.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/var_mean.h>

#include <tuple>
#include "csrc/ops/kernels.h"

namespace npu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

at::ScalarType statistics_type(const Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// All dimensions but that of the channels.
std::vector<int64_t> reduced(const Tensor& t) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (d != 1) dims.push_back(d);
  return dims;
}

// Reshapes one value per channel so that it broadcasts against `like`.
Tensor per_channel(const Tensor& values, const Tensor& like) {
  TORCH_CHECK(like.dim() > 1, "Expected an input with a dimension of channels ",
              "behind that of the batch, but got shape ", like.sizes());
  std::vector<int64_t> shape(size_t(like.dim()), 1);
  shape[1] = values.numel();
  return values.reshape(shape);
}

bool given(const OptionalTensor& t) { return t && t->defined(); }

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  const Tensor x = input.to(statistics_type(input));
  auto [variance, mean] =
      at::var_mean(x, reduced(input), /*correction=*/at::Scalar(0));
  return {mean, variance.add_(eps).rsqrt_()};
}

Tensor normalize(const Tensor& input, const OptionalTensor& weight,
                 const OptionalTensor& bias, const Tensor& mean,
                 const Tensor& invstd, double) {
  Tensor scale = invstd;
  if (given(weight)) scale = scale * weight->to(scale.scalar_type());
  Tensor y = input.to(statistics_type(input))
                 .sub(per_channel(mean, input))
                 .mul_(per_channel(scale, input));
  if (given(bias)) y.add_(per_channel(*bias, input));
  return y.to(input.scalar_type());
}

Tensor& normalize_out(const Tensor& input, const OptionalTensor& weight,
                      const OptionalTensor& bias, const Tensor& mean,
                      const Tensor& invstd, double eps, Tensor& out) {
  return out.copy_(normalize(input, weight, bias, mean, invstd, eps));
}

void update(const OptionalTensor& running, const Tensor& value,
            double momentum) {
  if (given(running))
    running->mul_(1 - momentum)
        .add_(value.to(running->scalar_type()), momentum);
}

// Combines the means and deviations of several processes, of `counts` elements
// each.
std::tuple<Tensor, Tensor> gather_with_counts(
    const Tensor&, const Tensor& mean, const Tensor& invstd,
    const OptionalTensor& running_mean, const OptionalTensor& running_var,
    double momentum, double eps, const Tensor& counts) {
  const Tensor n = counts.to(mean.scalar_type()).reshape({-1, 1});
  const Tensor total = n.sum();
  const Tensor all = mean.mul(n).sum(0).div_(total);
  const Tensor squares = invstd.pow(-2).sub_(eps).add_((mean - all).square());
  const Tensor deviations = squares.mul(n).sum(0);
  update(running_mean, all, momentum);
  update(running_var, deviations / (total - 1), momentum);
  return {all, deviations.div(total).add_(eps).rsqrt_()};
}

std::tuple<Tensor, Tensor> gather(const Tensor& input, const Tensor& mean,
                                  const Tensor& invstd,
                                  const OptionalTensor& running_mean,
                                  const OptionalTensor& running_var,
                                  double momentum, double eps, int64_t count) {
  return gather_with_counts(input, mean, invstd, running_mean, running_var,
                            momentum, eps,
                            at::full({mean.size(0)}, count, mean.options()));
}

// Returns the sums that the processes add up, and the gradients of weight and
// bias.
std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(
    const Tensor& grad, const Tensor& input, const Tensor& mean,
    const Tensor& invstd, const OptionalTensor& weight, bool input_grad,
    bool weight_grad, bool bias_grad) {
  const auto type = statistics_type(input);
  const auto dims = reduced(input);
  const Tensor dy = grad.to(type);
  const Tensor sum = dy.sum(dims);
  const Tensor sum_xmu =
      input.to(type).sub(per_channel(mean, input)).mul_(dy).sum(dims);
  const auto of_weight = given(weight) ? weight->scalar_type() : type;
  return {input_grad ? sum : Tensor(), input_grad ? sum_xmu : Tensor(),
          weight_grad ? sum_xmu.mul(invstd).to(of_weight) : Tensor(),
          bias_grad ? sum.to(of_weight, /*non_blocking=*/false, /*copy=*/true)
                    : Tensor()};
}

Tensor backward_elements(const Tensor& grad, const Tensor& input,
                         const Tensor& mean, const Tensor& invstd,
                         const OptionalTensor& weight, const Tensor& sum_dy,
                         const Tensor& sum_dy_xmu, const Tensor& count) {
  const auto type = statistics_type(input);
  const Tensor total = count.sum().to(type);
  const Tensor mean_dy = sum_dy / total;
  const Tensor slope = sum_dy_xmu / total * invstd.square();
  Tensor scale = invstd;
  if (given(weight)) scale = scale * weight->to(type);
  return input.to(type)
      .sub(per_channel(mean, input))
      .mul_(per_channel(slope, input))
      .neg_()
      .add_(grad.to(type))
      .sub_(per_channel(mean_dy, input))
      .mul_(per_channel(scale, input))
      .to(input.scalar_type());
}

NPU_KERNELS(PrivateUse1, m) {
  m.impl("batch_norm_stats", TORCH_FN(stats));
  m.impl("batch_norm_elemt", TORCH_FN(normalize));
  m.impl("batch_norm_elemt.out", TORCH_FN(normalize_out));
  m.impl("batch_norm_gather_stats", TORCH_FN(gather));
  m.impl("batch_norm_gather_stats_with_counts", TORCH_FN(gather_with_counts));
  m.impl("batch_norm_backward_reduce", TORCH_FN(backward_reduce));
  m.impl("batch_norm_backward_elemt", TORCH_FN(backward_elements));
}

}  // namespace
}  // namespace npu
