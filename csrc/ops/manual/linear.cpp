// A linear layer as one call: one task and one node of autograd's graph, where
// torch makes views of the weight and of the input, and nodes for them.
//
// The tasks are those of torch's composite, word for word: addmm, and mm for
// each gradient. What is not a plain layer is left to the composite.
#include <ATen/ops/linear_native.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include "csrc/ops/named_ops.h"
#include "csrc/ops/unrecorded.h"
#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

using torch::autograd::variable_list;

bool is_dense(const at::Tensor& t) {
  return is_npu(t) && has_default_strides(*t.unsafeGetTensorImpl());
}

at::Tensor as_rows(const at::Tensor& t) {
  return t.dim() == 2 ? t : t.reshape({-1, t.size(-1)});
}

// The gradients of addmm(bias, input as rows, weight.t()), by the products that
// torch takes where input and weight are contiguous.
struct LinearBackward final : torch::autograd::Node {
  std::string name() const override { return "LinearBackward0"; }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard lock(mutex_);
    variable_list results(3);
    if (!grads[0].defined()) return results;
    const at::Tensor grad = as_rows(grads[0]);
    if (task_should_compute_output(0)) {
      const at::Tensor of_rows = grad.mm(weight.unpack());
      results[0] = sizes.size() == 2 ? of_rows : of_rows.view(sizes);
    }
    if (task_should_compute_output(1))
      results[1] = grad.t().mm(as_rows(input.unpack()));
    // The engine adds up the rows, as it does for addmm.
    if (task_should_compute_output(2)) results[2] = grad;
    return results;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    input.reset_data();
    weight.reset_data();
  }

  void compiled_args(
      torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(input, false);
    args.collect(weight, false);
    args.collect(sizes);
  }
  variable_list apply_with_saved(
      const variable_list& grads,
      torch::dynamo::autograd::SwapSavedVariables& saved) override {
    saved.before(input);
    saved.before(weight);
    saved.before(sizes);
    variable_list results = apply(variable_list(grads));
    saved.after(input);
    saved.after(weight);
    saved.after(sizes);
    return results;
  }

  torch::autograd::SavedVariable input, weight;
  std::vector<int64_t> sizes;  // of the input
};

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

bool is_plain(c10::DispatchKeySet keys, const at::Tensor& input,
              const at::Tensor& weight, const at::Tensor& bias) {
  return (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId() ==
             c10::DispatchKey::PrivateUse1 &&
         is_dense(input) && is_dense(weight) && is_dense(bias) &&
         !input.is_complex() &&  // whose gradients are of conjugates
         input.dim() >= 2 && weight.dim() == 2 && bias.dim() == 1 &&
         input.numel() > 0 && weight.numel() > 0 &&
         input.size(-1) == weight.size(1) && bias.size(0) == weight.size(0);
}

bool has_tangent(const at::Tensor& t) {
  return t.unsafeGetTensorImpl()->autograd_meta() && t._fw_grad(0).defined();
}

at::Tensor linear(c10::DispatchKeySet keys, const at::Tensor& input,
                  const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  if (!bias || !is_plain(keys, input, weight, *bias) || has_tangent(input) ||
      has_tangent(weight) || has_tangent(*bias))
    return at::native::linear(input, weight, bias);
  c10::intrusive_ptr<LinearBackward> node;
  // Made before the launch, whose Python line is noted for it.
  if (c10::GradMode::is_enabled() &&
      (input.requires_grad() || weight.requires_grad() ||
       bias->requires_grad())) {
    node = c10::make_intrusive<LinearBackward>();
    node->set_next_edges(
        torch::autograd::collect_next_edges(input, weight, *bias));
    if (weight.requires_grad())
      node->input = torch::autograd::SavedVariable(input, false);
    if (input.requires_grad()) {
      node->weight = torch::autograd::SavedVariable(weight, false);
      node->sizes = input.sizes().vec();
    }
  }
  at::Tensor result = launch(input, weight, *bias);
  if (input.dim() != 2) {
    at::DimVector sizes(input.sizes());
    sizes.back() = weight.size(0);
    result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  if (node) torch::autograd::set_history(result, node);
  return result;
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("linear", TORCH_FN(linear));
}

}  // namespace
}  // namespace npu
