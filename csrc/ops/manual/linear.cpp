// A linear layer as one task, where torch makes views of the weight and of the
// input and a node of autograd's graph for each. The node is the one that torch
// generates from its formula for `linear`.
//
// The tasks are those of torch's composite: addmm, and mm for each gradient.
// Calls that somebody traces, transforms or differentiates forwards, and layers
// that are not plain, are left to the composite.
#include <ATen/ops/linear_backward_ops.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "csrc/ops/kernels.h"
#include "csrc/ops/named_ops.h"
#include "csrc/ops/unrecorded.h"
#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::generated::LinearBackward0;

bool is_dense(const at::Tensor& t) {
  return is_npu(t) && has_default_strides(*t.unsafeGetTensorImpl());
}

at::Tensor as_rows(const at::Tensor& t) {
  return t.dim() == 2 ? t : t.reshape({-1, t.size(-1)});
}

at::Tensor launch(const at::Tensor& input, const at::Tensor& weight,
                  const at::Tensor& bias) {
  const Op& addmm = op_of_addmm();
  const at::Scalar one(1);
  {
    const KeyScope scope;
    Key& key = scope.key;
    key.reset(&addmm, false);
    key.add(bias);
    key.add_rows(input);
    key.add_transposed(weight);
    key.add(one);
    key.add(one);
    at::Tensor result;
    if (launch_known(key, &result, nullptr)) [[likely]]
      return result;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return detail::call_cold_typed(addmm, bias, as_rows(input), weight.t(), one,
                                 one)[0]
      .toTensor();
}

bool is_plain(const at::Tensor& input, const at::Tensor& weight,
              const at::Tensor& bias) {
  return is_dense(input) && is_dense(weight) && is_dense(bias) &&
         !input.is_complex() &&  // whose gradients are of conjugates
         input.dim() >= 2 && weight.dim() == 2 && bias.dim() == 1 &&
         input.numel() > 0 && weight.numel() > 0 &&
         input.size(-1) == weight.size(1) && bias.size(0) == weight.size(0);
}

bool has_tangent(const at::Tensor& t) {
  return t.unsafeGetTensorImpl()->autograd_meta() && t._fw_grad(0).defined();
}

c10::intrusive_ptr<LinearBackward0> node_for(const at::Tensor& input,
                                             const at::Tensor& weight,
                                             const at::Tensor& bias) {
  auto node = c10::make_intrusive<LinearBackward0>();
  node->set_next_edges(
      torch::autograd::collect_next_edges(input, weight, bias));
  // A tensor whose values backward does not read may be written meanwhile.
  if (weight.requires_grad()) node->input_ = SavedVariable(input, false);
  if (input.requires_grad()) node->weight_ = SavedVariable(weight, false);
  return node;
}

at::Tensor linear(c10::DispatchKeySet keys, const at::Tensor& input,
                  const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  if (!goes_to_device(keys))
    return at::_ops::linear::redispatch(keys_of_composite(keys), input, weight,
                                        bias);
  if (!bias || !is_plain(input, weight, *bias) || has_tangent(input) ||
      has_tangent(weight) || has_tangent(*bias))
    return at::native::linear(input, weight, bias);
  c10::intrusive_ptr<LinearBackward0> node;
  // Made before the launch, whose Python line is noted for it.
  if (c10::GradMode::is_enabled() &&
      (input.requires_grad() || weight.requires_grad() ||
       bias->requires_grad()))
    node = node_for(input, weight, *bias);
  at::Tensor result = launch(input, weight, *bias);
  if (input.dim() != 2) {
    at::DimVector sizes(input.sizes());
    sizes.back() = weight.size(0);
    result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  if (node) torch::autograd::set_history(result, node);
  return result;
}

// Where `wanted` has no gradient of `weight`, `input` may be any tensor;
// without one of `input`, `weight` may be.
std::tuple<at::Tensor, at::Tensor, at::Tensor> backward_of_linear(
    const at::Tensor& input, const at::Tensor& grad, const at::Tensor& weight,
    std::array<bool, 3> wanted) {
  const at::Tensor rows = as_rows(grad);
  std::tuple<at::Tensor, at::Tensor, at::Tensor> results;
  if (wanted[0]) {
    at::Tensor of_rows = rows.mm(weight.conj());
    at::DimVector sizes(grad.sizes());
    sizes.back() = weight.size(1);
    std::get<0>(results) = grad.dim() == 2 ? of_rows : of_rows.view(sizes);
  }
  if (wanted[1]) std::get<1>(results) = rows.t().mm(as_rows(input).conj());
  if (wanted[2]) std::get<2>(results) = rows.sum(0);
  return results;
}

// The node passes on an undefined tensor where it has not saved one, which
// torch's kernel for autograd refuses: there, one without memory of its own
// has the sizes of what it stands for.
std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward_of_autograd(
    c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& grad,
    const at::Tensor& weight, std::array<bool, 3> wanted) {
  if (is_unrecorded(keys, input, grad, weight))
    return backward_of_linear(input, grad, weight, wanted);
  const auto or_sized = [&](const at::Tensor& t, at::SymDimVector sizes,
                            const at::Tensor& other) {
    if (t.defined()) return t;
    sizes.back() = other.defined() ? other.sym_size(-1) : c10::SymInt(1);
    return grad.new_empty_symint({1}).expand_symint(sizes);
  };
  return at::_ops::linear_backward::redispatch(
      recorded_keys(keys),
      or_sized(input, at::SymDimVector(grad.sym_sizes()), weight), grad,
      or_sized(weight, {grad.sym_size(-1), 1}, input), wanted);
}

NPU_KERNELS(AutogradPrivateUse1, m) {
  m.impl("linear", TORCH_FN(linear));
  m.impl("linear_backward", TORCH_FN(linear_backward_of_autograd));
}
NPU_KERNELS(PrivateUse1, m) {
  m.impl("linear_backward", TORCH_FN(backward_of_linear));
}

}  // namespace
}  // namespace npu
