// Computes in float32 those matrix products of float16 and bfloat16 for which
// torch's cpu kernels use no vector instructions.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu {

// Whether the machine has what oneDNN needs to compute in bfloat16.
bool has_wide_vectors();

// With the arguments of mm or bmm, and of addmm or baddbmm. True: `out` has the
// result; else nothing was done.
bool half_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& out);
bool half_product(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                  const at::Scalar& beta, const at::Scalar& alpha,
                  at::Tensor& out);

}  // namespace npu
