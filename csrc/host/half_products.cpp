#include "csrc/host/half_products.h"

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

}  // namespace

bool half_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  if (!goes_through_float(a, b)) return false;
  out.copy_(a.dim() == 3 ? at::bmm(wide(a), wide(b))
                         : at::mm(wide(a), wide(b)));
  return true;
}

bool half_product(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                  const at::Scalar& beta, const at::Scalar& alpha,
                  at::Tensor& out) {
  if (!goes_through_float(a, b)) return false;
  out.copy_(a.dim() == 3 ? at::baddbmm(wide(c), wide(a), wide(b), beta, alpha)
                         : at::addmm(wide(c), wide(a), wide(b), beta, alpha));
  return true;
}

}  // namespace npu
