// Dropout's product in one pass, where torch's cpu kernels convert the mask to
// numbers and multiply twice.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu {

// out = t * mask * scale, with the bits that these kernels give. False: nothing
// was done, since the tensors are not of float and bool, or lie otherwise in
// memory than each other.
bool masked_scale(const at::Tensor& t, const at::Tensor& mask, double scale,
                  at::Tensor& out);

}  // namespace npu
