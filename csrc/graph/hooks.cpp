#include "csrc/graph/hooks.h"

namespace npu {
namespace {

// Set once, while the module is loaded.
CaptureHooks hooks_{};

}  // namespace

void set_own_kernel_hook(OwnKernel (*own)(const npu_kernel*)) {
  hooks_.own = own;
}
void set_line_hook(std::string (*line)()) { hooks_.line = line; }
const CaptureHooks& capture_hooks() { return hooks_; }

}  // namespace npu
