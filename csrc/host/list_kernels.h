// Kernels of operators on lists, for optimizers whose step a graph may capture.
// Such an optimizer counts its steps on the device, in one 0-dim tensor per
// parameter, and for each of these torch's cpu kernel makes a tensor of the
// scalar and dispatches three times.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu {

// The results of these four do not depend on order or width of vectors, so they
// are those of the cpu kernel.
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

// Converts a number as torch converts a tensor: without an error where it is
// too large.
inline float as_float(const at::Scalar& s) {
  return s.isIntegral(/*includeBool=*/true) ? float(s.toLong())
                                            : float(s.toDouble());
}

template <typename F>
void apply_to_each(at::TensorList list, const at::Scalar& scalar) {
  // Above this many elements torch's vectorised kernel is faster.
  constexpr int64_t kSmall = 2048;
  for (const at::Tensor& t : list) {
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

// The power of `base` to an exponent, into `out`.
void power(const at::Scalar& base, const at::Tensor& exponent, at::Tensor& out);

}  // namespace npu
