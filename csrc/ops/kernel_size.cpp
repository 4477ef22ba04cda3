#include "csrc/ops/kernel_size.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "csrc/ops/shared_products.h"

namespace npu {
namespace {

// Kernels that are as fast as memory is. A team of two gains little on them,
// and has to be woken: up to kSmallCopy elements, some 200 us, they are small.
// bench/neighbour.py, cases sac and vae.
constexpr int64_t kSmallCopy = 300'000;
constexpr std::string_view kCopies[] = {
    "aten::_foreach_add",
    "aten::_foreach_add_",
    "aten::_foreach_addcdiv_",
    "aten::_foreach_addcmul_",
    "aten::_foreach_div",
    "aten::_foreach_div_",
    "aten::_foreach_lerp_",
    "aten::_foreach_mul",
    "aten::_foreach_mul_",
    "aten::_foreach_sqrt",
    "aten::_foreach_sub_",
    "aten::abs",
    "aten::add",
    "aten::add_",
    "aten::addcdiv_",
    "aten::addcmul_",
    "aten::clamp",
    "aten::clamp_min",
    "aten::copy_",
    "aten::div",
    "aten::div_",
    "aten::fill_",
    "aten::lerp_",
    "aten::masked_fill",
    "aten::masked_fill_",
    "aten::maximum",
    "aten::minimum",
    "aten::mul",
    "aten::mul_",
    "aten::neg",
    "aten::relu",
    "aten::relu_",
    "aten::sub",
    "aten::sub_",
    "aten::threshold_backward",
    "aten::where",
    "aten::zero_",
};
static_assert(std::is_sorted(std::begin(kCopies), std::end(kCopies)));

bool is_copy(std::string_view name) {
  return std::binary_search(std::begin(kCopies), std::end(kCopies), name);
}

int64_t elements(const npu_view& view) {
  int64_t n = 1;
  for (uint16_t d = 0; d < view.ndim; ++d) n *= view.sizes[d];
  return n;
}

// Negative: it is no product of matrices.
double multiplications(std::string_view name, at::ArrayRef<npu_view> views) {
  const bool batched = name == "aten::bmm" || name == "aten::baddbmm";
  if (!batched && name != "aten::mm" && name != "aten::addmm") return -1;
  if (views.size() < 3) return -1;
  // The last three are the factors and the result. The product of their numbers
  // of elements is the square of the number of multiplications, times the
  // number of batches.
  double all = 1;
  for (const npu_view& view : views.slice(views.size() - 3))
    all *= double(elements(view));
  if (batched) all /= double(std::max<int64_t>(views.back().sizes[0], 1));
  return std::sqrt(all);
}

}  // namespace

KernelSize kernel_size(const Op& op, at::ArrayRef<c10::IValue> arguments,
                       at::ArrayRef<npu_view> views) {
  const std::string_view name = op.name;
  const double products = multiplications(name, views);
  if (products >= 0 &&
      is_shared_product(arguments[0].toTensor().scalar_type(), products))
    return KernelSize::kSmall;  // each of its pieces
  const int64_t most = is_copy(name) ? kSmallCopy : kSmallKernel;
  return std::any_of(views.begin(), views.end(),
                     [&](const npu_view& v) { return elements(v) > most; })
             ? KernelSize::kLarge
             : KernelSize::kSmall;
}

}  // namespace npu
