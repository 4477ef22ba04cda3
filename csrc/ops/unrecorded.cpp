#include "csrc/ops/unrecorded.h"

#include <c10/core/GradMode.h>

namespace npu {

bool detail::needs_autograd(const at::Tensor& t) {
  return (t.requires_grad() && c10::GradMode::is_enabled()) ||
         t._fw_grad(/*level=*/0).defined();
}

}  // namespace npu
