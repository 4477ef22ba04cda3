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
#include <string_view>

#include "csrc/ops/boxed.h"
#include "csrc/ops/frame.h"
#include "csrc/ops/op.h"

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

const Op kAdd("aten::_foreach_add_", "Scalar", &run<Add>);
const Op kSub("aten::_foreach_sub_", "Scalar", &run<Sub>);
const Op kMul("aten::_foreach_mul_", "Scalar", &run<Mul>);
const Op kDiv("aten::_foreach_div_", "Scalar", &run<Div>);
const Op kSqrt("aten::_foreach_sqrt", "", &run_sqrt);
const Op kPow("aten::_foreach_pow", "ScalarAndTensor", &run_pow);

template <const Op& op>
void call(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  call_on_top(op, stack);
}

torch::CppFunction kernel_of(std::string_view name) {
  using torch::CppFunction;
  if (name == "aten::_foreach_add_.Scalar")
    return CppFunction::makeFromBoxedFunction<&call<kAdd>>();
  if (name == "aten::_foreach_sub_.Scalar")
    return CppFunction::makeFromBoxedFunction<&call<kSub>>();
  if (name == "aten::_foreach_mul_.Scalar")
    return CppFunction::makeFromBoxedFunction<&call<kMul>>();
  if (name == "aten::_foreach_div_.Scalar")
    return CppFunction::makeFromBoxedFunction<&call<kDiv>>();
  if (name == "aten::_foreach_sqrt")
    return CppFunction::makeFromBoxedFunction<&call<kSqrt>>();
  if (name == "aten::_foreach_pow.ScalarAndTensor")
    return CppFunction::makeFromBoxedFunction<&call<kPow>>();
  return CppFunction::makeFromBoxedFunction<&call_boxed>();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::_foreach_")) continue;
    const std::string full = name.overload_name.empty()
                                 ? name.name
                                 : name.name + "." + name.overload_name;
    m.impl(full.c_str(), kernel_of(full));
  }
}

}  // namespace
}  // namespace npu
