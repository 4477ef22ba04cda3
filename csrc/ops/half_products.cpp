#include "csrc/ops/half_products.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>

namespace npu {

bool has_wide_vectors() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq");
  return has;
#else
  return true;
#endif
}

namespace {

// On x86 without AVX-512, torch's kernels for both types are several times
// slower than computing in float32, whatever the layout. With AVX-512, oneDNN
// computes bfloat16, while float16 is vectorised only where both tensors are
// contiguous along the dimension that is summed over, as in a linear layer's
// forward, and then sum by sum: products of a vector take half again as long as
// in float32, others up to fifteen times as long. A short sum takes little time
// either way.
bool goes_through_float(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kShort = 8;
  const bool half = a.scalar_type() == at::kHalf;
  if ((!half && a.scalar_type() != at::kBFloat16) || a.size(-1) < kShort) {
    return false;
  }
  if (!has_wide_vectors()) return true;
  if (!half) return false;
  if (a.stride(-1) != 1 || b.stride(-2) != 1) return true;
  // What is to be converted grows slower than what is computed.
  constexpr int64_t kFew = 4, kLittle = 8192;
  const int64_t rows = a.size(-2), columns = b.size(-1);
  return std::min(rows, columns) >= kFew &&
         rows * columns * a.size(-1) >= kLittle;
}

at::Tensor wide(const at::Tensor& t) { return t.to(at::kFloat); }

bool product(Frame& f,
             at::Tensor (*multiply)(const at::Tensor&, const at::Tensor&)) {
  const at::Tensor &a = f.tensor(0), &b = f.tensor(1);
  if (!goes_through_float(a, b)) return false;
  f.out(0).copy_(multiply(wide(a), wide(b)));
  return true;
}

bool added_product(Frame& f,
                   at::Tensor (*multiply)(const at::Tensor&, const at::Tensor&,
                                          const at::Tensor&, const at::Scalar&,
                                          const at::Scalar&)) {
  const at::Tensor &a = f.tensor(1), &b = f.tensor(2);
  if (!goes_through_float(a, b)) return false;
  f.out(0).copy_(
      multiply(wide(f.tensor(0)), wide(a), wide(b), f.scalar(3), f.scalar(4)));
  return true;
}

}  // namespace

bool run_half_mm_out(Frame& f) {
  return product(
      f, [](const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b); });
}
bool run_half_bmm_out(Frame& f) {
  return product(f, [](const at::Tensor& a, const at::Tensor& b) {
    return at::bmm(a, b);
  });
}
bool run_half_addmm_out(Frame& f) {
  return added_product(
      f, [](const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
            const at::Scalar& beta, const at::Scalar& alpha) {
        return at::addmm(c, a, b, beta, alpha);
      });
}
bool run_half_baddbmm_out(Frame& f) {
  return added_product(
      f, [](const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
            const at::Scalar& beta, const at::Scalar& alpha) {
        return at::baddbmm(c, a, b, beta, alpha);
      });
}

}  // namespace npu
