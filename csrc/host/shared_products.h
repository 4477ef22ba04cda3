// Products of matrices in pieces, for which cores that are idle are used as
// they come (shared_loop.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace npu {

// Whether a product with so many multiplications is run so.
bool is_shared_product(at::ScalarType dtype, double multiplications);

// With the arguments of mm or bmm, and of addmm or baddbmm. True: `out` has the
// result; else nothing was done.
bool shared_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& out);
bool shared_product(const at::Tensor& c, const at::Tensor& a,
                    const at::Tensor& b, const at::Scalar& beta,
                    const at::Scalar& alpha, at::Tensor& out);

}  // namespace npu
