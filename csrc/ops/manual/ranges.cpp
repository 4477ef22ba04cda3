// Factories whose results torch makes empty and then resizes. Here they have
// their size at once, so that a call that was made before is found again.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>

#include <algorithm>

#include "csrc/ops/kernels.h"
#include "csrc/ops/range_length.h"

namespace npu {
namespace {

at::Tensor arange(const at::Scalar& start, const at::Scalar& end,
                  const at::Scalar& step, std::optional<at::ScalarType> dtype,
                  std::optional<at::Layout> layout,
                  std::optional<at::Device> device,
                  std::optional<bool> pinned) {
  const bool integers =
      start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  const at::ScalarType type =
      !dtype && integers ? at::kLong : at::dtype_or_default(dtype);
  // Where the length is not known, the kernel resizes the result, or refuses.
  const int64_t length = range_length(start, end, step, type).value_or(0);
  at::Tensor out = at::empty({length}, type, layout, device, pinned, {});
  return at::arange_out(out, start, end, step);
}

at::Tensor arange_to(const at::Scalar& end, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout> layout,
                     std::optional<at::Device> device,
                     std::optional<bool> pinned) {
  return arange(0, end, 1, dtype, layout, device, pinned);
}

at::Tensor arange_between(const at::Scalar& start, const at::Scalar& end,
                          std::optional<at::ScalarType> dtype,
                          std::optional<at::Layout> layout,
                          std::optional<at::Device> device,
                          std::optional<bool> pinned) {
  return arange(start, end, 1, dtype, layout, device, pinned);
}

at::Tensor eye(int64_t n, int64_t m, std::optional<at::ScalarType> dtype,
               std::optional<at::Layout> layout,
               std::optional<at::Device> device, std::optional<bool> pinned) {
  // Sizes below 0 are for the kernel to refuse.
  at::Tensor out = at::empty({std::max<int64_t>(n, 0), std::max<int64_t>(m, 0)},
                             dtype, layout, device, pinned, {});
  return at::eye_out(out, n, m);
}

NPU_KERNELS(PrivateUse1, m) {
  m.impl("arange", TORCH_FN(arange_to));
  m.impl("arange.start", TORCH_FN(arange_between));
  m.impl("arange.start_step", TORCH_FN(arange));
  m.impl("eye.m", TORCH_FN(eye));
}

}  // namespace
}  // namespace npu
