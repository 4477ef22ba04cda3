#include "csrc/graph/hooks.h"

namespace npu {
namespace {

// Set once, while the module is loaded.
CaptureHooks hooks_{};

}  // namespace

void set_own_kernel_hook(OwnKernel (*own)(const npu_kernel*)) {
  hooks_.own = own;
}
void set_line_hooks(std::string (*line)(), std::string (*line_of)(uint32_t)) {
  hooks_.line = line;
  hooks_.line_of = line_of;
}
void set_part_hook(uint64_t (*part_of)()) { hooks_.part_of = part_of; }
const CaptureHooks& capture_hooks() { return hooks_; }

}  // namespace npu
