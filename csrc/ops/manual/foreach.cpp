// The operators on lists of tensors, which optimizers use: one task each.
//
// Those of an optimizer whose step a graph may capture have kernels of their
// own: it counts on the device, in one tensor without dimensions per parameter,
// and torch's cpu kernel makes a tensor of the scalar and dispatches three
// times for each of them.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sqrt.h>
#include <torch/library.h>

#include <cmath>
#include <string>

#include "csrc/ops/boxed.h"
#include "csrc/ops/frame.h"

namespace npu {
namespace {

// Above it the vectors of torch's kernel are worth its way there.
constexpr int64_t kSmall = 2048;

// As torch converts the tensor of a number: without an error where it is too
// large.
float as_float(const at::Scalar& s) {
  return s.isIntegral(/*includeBool=*/true) ? float(s.toLong())
                                            : float(s.toDouble());
}

// Each of the four is exact in every order and width of vectors, so that the
// results are the cpu kernel's.
struct Add {
  static float apply(float a, float b) { return a + b; }
  static void apply(const at::Tensor& t, const at::Scalar& s) { t.add_(s); }
};
struct Sub {
  static float apply(float a, float b) { return a - b; }
  static void apply(const at::Tensor& t, const at::Scalar& s) { t.sub_(s); }
};
struct Mul {
  static float apply(float a, float b) { return a * b; }
  static void apply(const at::Tensor& t, const at::Scalar& s) { t.mul_(s); }
};
struct Div {
  static float apply(float a, float b) { return a / b; }
  static void apply(const at::Tensor& t, const at::Scalar& s) { t.div_(s); }
};

template <typename F>
void run(Frame& frame) {
  const at::Scalar& scalar = frame.scalar(1);
  for (const at::Tensor& t : frame.tensors(0)) {
    if (t.scalar_type() != at::kFloat || t.numel() > kSmall ||
        !t.is_contiguous() || scalar.isComplex()) {
      F::apply(t, scalar);
      continue;
    }
    const float s = as_float(scalar);
    float* const values = t.mutable_data_ptr<float>();
    for (int64_t i = 0, n = t.numel(); i < n; ++i)
      values[i] = F::apply(values[i], s);
  }
}

// Into the results' memory, where the cpu kernel makes new tensors.
void run_sqrt(Frame& frame) {
  int i = 0;
  for (const at::Tensor& t : frame.tensors(0)) at::sqrt_out(frame.out(i++), t);
}

void run_pow(Frame& frame) {
  const at::Scalar& base = frame.scalar(0);
  int i = 0;
  for (const at::Tensor& t : frame.tensors(1)) {
    at::Tensor& out = frame.out(i++);
    // What the kernel does with what its vectors leave over.
    if (t.numel() == 1 && t.scalar_type() == at::kFloat &&
        out.scalar_type() == at::kFloat && !base.isComplex())
      *out.mutable_data_ptr<float>() =
          std::pow(as_float(base), *t.const_data_ptr<float>());
    else
      at::pow_out(out, base, t);
  }
}

// Autograd counts what is written to a tensor argument before it gets here, but
// not to a list's: cpu's kernels count by themselves, once for each entry.
template <bool first>
void call_writing(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const size_t n = handle.schema().arguments().size();
  const c10::IValue written = (*stack)[stack->size() - (first ? n : 1)];
  // Outside inference mode this raises, for a tensor that was made in it.
  if (first)
    for (const c10::IValue& element : written.toListRef())
      if (const at::Tensor& t = element.toTensor(); t.is_inference())
        t.unsafeGetTensorImpl()->bump_version();
  call_boxed(handle, stack);
  for (const c10::IValue& element : written.toListRef()) {
    const at::Tensor& t = element.toTensor();
    if (!t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
  }
}

torch::CppFunction kernel_of(const c10::OperatorName& name) {
  if (name.name.ends_with("_"))
    return torch::CppFunction::makeFromBoxedFunction<&call_writing<true>>();
  if (name.overload_name.ends_with("out"))
    return torch::CppFunction::makeFromBoxedFunction<&call_writing<false>>();
  return torch::CppFunction::makeFromBoxedFunction<&call_boxed>();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  set_runner("aten::_foreach_add_.Scalar", &run<Add>);
  set_runner("aten::_foreach_sub_.Scalar", &run<Sub>);
  set_runner("aten::_foreach_mul_.Scalar", &run<Mul>);
  set_runner("aten::_foreach_div_.Scalar", &run<Div>);
  set_runner("aten::_foreach_sqrt.", &run_sqrt);
  set_runner("aten::_foreach_pow.ScalarAndTensor", &run_pow);
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::_foreach_")) continue;
    const std::string full = name.overload_name.empty()
                                 ? name.name
                                 : name.name + "." + name.overload_name;
    m.impl(full.c_str(), kernel_of(name));
  }
}

}  // namespace
}  // namespace npu
