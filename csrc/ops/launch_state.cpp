#include "csrc/ops/launch_state.h"

#include <ATen/Context.h>

namespace npu {

std::atomic<uint64_t> LaunchState::switches_{0};

void LaunchState::read_switches() {
  const at::Context& context = at::globalContext();
  uint64_t bits = 0;
  bits |= uint64_t(context.deterministicAlgorithms()) << 0;
  bits |= uint64_t(context.deterministicFillUninitializedMemory()) << 1;
  bits |= uint64_t(context.userEnabledMkldnn()) << 2;
  bits |= uint64_t(context.deterministicAlgorithmsWarnOnly()) << 3;
  // Relaxed: see now().
  switches_.store(bits << kSwitches, std::memory_order_relaxed);
}

}  // namespace npu
