#include "csrc/host/masked_scale.h"

#include "csrc/host/vectors.h"

namespace npu {
namespace {

// `result` is not where the others are.
void scale_block(const float* values, const bool* mask, float scale, int n,
                 float* __restrict result) {
  for (int i = 0; i < n; ++i) result[i] = values[i] * (mask[i] ? scale : 0.0f);
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
  const bool* const kept = mask.const_data_ptr<bool>();
  float* const result = out.mutable_data_ptr<float>();
  const float factor = float(scale);
  const int64_t n = out.numel();
  in_vectors([=] {
    constexpr int kBlock = 64;
    int64_t i = 0;
    for (; i + kBlock <= n; i += kBlock)
      scale_block(values + i, kept + i, factor, kBlock, result + i);
    scale_block(values + i, kept + i, factor, int(n - i), result + i);
  });
  return true;
}

}  // namespace npu
