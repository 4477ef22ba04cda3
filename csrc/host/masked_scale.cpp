#include "csrc/host/masked_scale.h"

#include <bit>
#include <cstdint>

#include "csrc/host/vectors.h"

namespace npu {
namespace {

// `result` is not where the others are. `mask`: 0 or 1 for each value.
[[gnu::always_inline]] inline void scale_each(const float* values,
                                              const uint8_t* mask, float scale,
                                              int64_t n,
                                              float* __restrict result) {
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  for (int64_t i = 0; i < n; ++i)
    result[i] = values[i] * std::bit_cast<float>(bits & -uint32_t{mask[i]});
}

bool lies_like(const at::Tensor& t, const at::Tensor& other) {
  return t.sizes() == other.sizes() && t.strides() == other.strides() &&
         !t.is_neg() && !t.is_conj();
}

}  // namespace

bool masked_scale(const at::Tensor& t, const at::Tensor& mask, double scale,
                  at::Tensor& out) {
  if (t.scalar_type() != at::kFloat || mask.scalar_type() != at::kBool ||
      out.scalar_type() != at::kFloat || !out.is_non_overlapping_and_dense() ||
      !lies_like(t, out) || !lies_like(mask, out) || out.is_alias_of(t))
    return false;
  const float* const values = t.const_data_ptr<float>();
  const auto* const kept = static_cast<const uint8_t*>(mask.const_data_ptr());
  float* const result = out.mutable_data_ptr<float>();
  const float factor = float(scale);
  const int64_t n = out.numel();
  in_vectors([=] { scale_each(values, kept, factor, n, result); });
  return true;
}

}  // namespace npu
