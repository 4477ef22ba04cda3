// The operators on lists of tensors, which optimizers use: each is one task,
// and with out= a copy to each tensor.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/sqrt.h>

#include <string>

#include "csrc/host/list_kernels.h"
#include "csrc/ops/boxed.h"
#include "csrc/ops/frame.h"
#include "csrc/ops/kernels.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

template <typename F>
void run(Frame& frame) {
  apply_to_each<F>(frame.tensors(0), frame.scalar(1));
}

// These write into the results' memory, where the cpu kernel makes new tensors.
void run_sqrt(Frame& frame) {
  int i = 0;
  for (const at::Tensor& t : frame.tensors(0)) at::sqrt_out(frame.out(i++), t);
}
void run_pow(Frame& frame) {
  int i = 0;
  for (const at::Tensor& t : frame.tensors(1))
    power(frame.scalar(0), t, frame.out(i++));
}

// Autograd bumps the version of a written tensor argument before the call gets
// here, but not those of a list's tensors: cpu's kernels do that themselves,
// once for each entry of the list.
void call_in_list(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const size_t n = handle.schema().arguments().size();
  const c10::IValue written = torch::jit::last(*stack, n)[0];
  // Outside of inference mode this raises for a tensor that was made in it.
  for (const c10::IValue& element : written.toListRef())
    if (const at::Tensor& t = element.toTensor(); t.is_inference())
      t.unsafeGetTensorImpl()->bump_version();
  call_boxed(handle, stack);
  for (const c10::IValue& element : written.toListRef()) {
    const at::Tensor& t = element.toTensor();
    if (!t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
  }
}

// Takes the lists' factors in a tensor of the host, where torch wants it: a
// number for each entry of the lists.
void call_with_factors(const c10::OperatorHandle& handle,
                       torch::jit::Stack* stack) {
  const at::Tensor factors = stack->back().toTensor();
  const std::string& name = handle.operator_name().name;
  const bool in_place = name.ends_with("_");
  // Factors on the device are read by the task.
  if (!factors.device().is_cpu())
    return in_place ? call_in_list(handle, stack) : call_boxed(handle, stack);
  const size_t n = handle.schema().arguments().size();
  const int64_t lists = torch::jit::last(*stack, n)[0].toListRef().size();
  c10::impl::GenericList numbers(c10::NumberType::get());
  for (const at::Scalar& s :
       at::native::convert_tensor_to_scalar_list(factors, lists))
    numbers.push_back(s);
  stack->back() = std::move(numbers);
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(name.c_str(), "ScalarList")
      .redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                       stack);
}

// Calls the form without out= and copies its results. torch does so, too, but
// counts as a write that it resizes a tensor of a device that is not its own.
void call_out(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const c10::OperatorName& name = handle.operator_name();
  const std::string overload =
      name.overload_name == "out"
          ? ""
          : name.overload_name.substr(0, name.overload_name.rfind("_out"));
  const std::vector<at::Tensor> outs = torch::jit::pop(*stack).toTensorVector();
  const at::AutoDispatchBelowADInplaceOrView guard;
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(name.name.c_str(), overload.c_str())
      .callBoxed(stack);
  const auto results = torch::jit::pop(*stack).toTensorVector();
  for (size_t i = 0; i < outs.size(); ++i) {
    const at::Tensor& out = outs[i];
    if (at::native::resize_output_check(out, results[i].sizes())) {
      if (is_npu(out))
        resize_tensor(out, results[i].sizes());
      else
        out.resize_(results[i].sizes());
    }
    out.copy_(results[i]);
    if (!out.is_inference()) out.unsafeGetTensorImpl()->bump_version();
  }
}

bool takes_factors(const c10::OperatorName& name) {
  return name.overload_name == "Tensor" &&
         (name.name.starts_with("aten::_foreach_addcdiv") ||
          name.name.starts_with("aten::_foreach_addcmul"));
}

c10::KernelFunction kernel_of(const c10::OperatorName& name) {
  if (takes_factors(name)) return boxed_kernel<&call_with_factors>();
  if (name.name.ends_with("_")) return boxed_kernel<&call_in_list>();
  if (name.overload_name.ends_with("out")) return boxed_kernel<&call_out>();
  return boxed_kernel<&call_boxed>();
}

NPU_KERNELS(PrivateUse1, m) {
  set_runner("aten::_foreach_add_.Scalar", &run<Add>);
  set_runner("aten::_foreach_sub_.Scalar", &run<Sub>);
  set_runner("aten::_foreach_mul_.Scalar", &run<Mul>);
  set_runner("aten::_foreach_div_.Scalar", &run<Div>);
  set_runner("aten::_foreach_sqrt.", &run_sqrt);
  set_runner("aten::_foreach_pow.ScalarAndTensor", &run_pow);
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.starts_with("aten::_foreach_")) m.impl(name, kernel_of(name));
  }
}

}  // namespace
}  // namespace npu
