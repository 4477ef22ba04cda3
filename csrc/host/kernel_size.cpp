#include "csrc/host/kernel_size.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "csrc/host/kernel_cost.h"
#include "csrc/host/shared_products.h"

namespace npu {

KernelSize kernel_size(std::string_view name, bool element_wise,
                       at::ArrayRef<c10::IValue> arguments,
                       at::ArrayRef<npu_view> views) {
  if (const auto products = multiplications(name, views)) {
    const at::ScalarType dtype = arguments[0].toTensor().scalar_type();
    if (is_shared_product(dtype, *products))
      return KernelSize::kSmall;  // each of its pieces
  }
  if (const auto ns = kernel_ns(name, element_wise, views))
    return *ns > kAloneNs ? KernelSize::kLarge : KernelSize::kSmall;
  int64_t ndim = 0;
  bool large = false;
  for (const npu_view& view : views) {
    ndim = std::max<int64_t>(ndim, view.ndim);
    large = large || elements(view) > kSmallKernel;
  }
  return large ? size_of_large(name, ndim) : KernelSize::kSmall;
}

KernelSize size_of_large(std::string_view name, int64_t ndim) {
  static constexpr std::string_view kFactorise[] = {
      "aten::_linalg_det",      "aten::_linalg_slogdet",
      "aten::_linalg_solve_ex", "aten::linalg_inv_ex",
      "aten::linalg_lu",        "aten::linalg_lu_factor_ex"};
  const bool nested =
      ndim > 2 && std::ranges::find(kFactorise, name) != std::end(kFactorise);
  return nested ? KernelSize::kNested : KernelSize::kLarge;
}

}  // namespace npu
