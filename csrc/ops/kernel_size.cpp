#include "csrc/ops/kernel_size.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "csrc/ops/kernel_cost.h"
#include "csrc/ops/shared_products.h"

namespace npu {

KernelSize kernel_size(const Op& op, at::ArrayRef<c10::IValue> arguments,
                       at::ArrayRef<npu_view> views) {
  if (const auto products = multiplications(op, views)) {
    const at::ScalarType dtype = arguments[0].toTensor().scalar_type();
    if (is_shared_product(dtype, *products))
      return KernelSize::kSmall;  // each of its pieces
  }
  if (const auto ns = kernel_ns(op, views))
    return *ns > kAloneNs ? KernelSize::kLarge : KernelSize::kSmall;
  return std::any_of(
             views.begin(), views.end(),
             [](const npu_view& v) { return elements(v) > kSmallKernel; })
             ? KernelSize::kLarge
             : KernelSize::kSmall;
}

}  // namespace npu
