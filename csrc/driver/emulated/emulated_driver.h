// A device of stated speed: its tasks take as long as such a device would need
// (docs/plan.md). With compute=none nothing is computed, and the host reads
// back zeros; with compute=real a thread for each queue computes as well.
#pragma once

#include "csrc/driver/driver.h"
#include "csrc/driver/emulated/work.h"

namespace npu {

const npu_driver& emulated_driver();

// Reads NPU_EMULATED; throws a runtime_error that says what is wrong with it.
void check_emulated_spec();

// What a task that was launched on its devices has to do.
TaskWork emulated_work(const npu_kernel& kernel, const uint64_t* words);

// Floating-point operations that its devices were given since the last call.
// Any thread.
double take_emulated_flops();

}  // namespace npu
