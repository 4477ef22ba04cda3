// Operators that torch composes of several: on a device each becomes one task.
// Also the kernel of everything that has no wrapper of its own.
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "csrc/ops/boxed.h"

namespace npu {
namespace {

constexpr const char* kOneTask[] = {
    "convolution",
    "convolution_backward",
    "embedding",
    "slice_backward",
    "select_backward",
    "constant_pad_nd",
    "binary_cross_entropy_with_logits",
    "mode.values",
};

// The cpu kernel draws from a generator that it does not take as an argument.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input,
                                                  double p,
                                                  std::optional<bool> train) {
  if (input.numel() == 0 || (train && !*train) || p == 0)
    return {input.clone(),
            at::ones_like(input, input.options().dtype(at::kBool))};
  if (p == 1)
    return {at::zeros_like(input),
            at::zeros_like(input, input.options().dtype(at::kBool))};
  at::Tensor mask =
      at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
  return {input.mul(mask).mul_(1 / (1 - p)), mask};
}

torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<&call_boxed>();
}

bool takes_lists_in_one_task(const c10::OperatorName& name) {
  return name.name.starts_with("aten::_foreach_");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", TORCH_FN(native_dropout));
  for (const char* name : kOneTask) m.impl(name, boxed());
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    if (!takes_lists_in_one_task(name)) continue;
    const std::string full = name.overload_name.empty()
                                 ? name.name
                                 : name.name + "." + name.overload_name;
    m.impl(full.c_str(), boxed());
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(boxed()); }

}  // namespace
}  // namespace npu
