// A device of stated speed: its tasks take the time that it would need, on a
// clock of its own (docs/plan.md). With compute=none nothing is computed, and
// what is read back are zeros; with compute=real a thread computes besides.
#pragma once

#include "csrc/driver/driver.h"

namespace npu {

const npu_driver& emulated_driver();

// Reads NPU_EMULATED; a runtime_error says what is wrong with it.
void check_emulated_spec();

// Operations that its devices were given since this was last asked. Any thread.
double take_emulated_flops();

}  // namespace npu
