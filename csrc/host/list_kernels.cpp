#include "csrc/host/list_kernels.h"

#include <ATen/ops/pow.h>

#include <cmath>

namespace npu {

void power(const at::Scalar& base, const at::Tensor& exponent,
           at::Tensor& out) {
  // This is what the cpu kernel does with elements that fill no vector.
  if (exponent.numel() == 1 && exponent.scalar_type() == at::kFloat &&
      out.scalar_type() == at::kFloat && !base.isComplex())
    *out.mutable_data_ptr<float>() =
        std::pow(as_float(base), *exponent.const_data_ptr<float>());
  else
    at::pow_out(out, base, exponent);
}

}  // namespace npu
