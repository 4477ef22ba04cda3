// This machine, as the policy is told of it.
#pragma once

#include "csrc/placement/policy.h"

namespace npu {

// The process's. Made at its first use, of NPU_DISPATCH_PLACEMENT and of what
// the machine is then; a quota that changes later is not seen.
Policy& policy();

// Read at its first use, which takes a millisecond for a hundred CPUs.
const Topology& topology();

// Those that the calling thread may run on.
int usable_cores();

// The calling thread has other CPUs now than it had. Tells the policy.
void cpus_have_changed(const cpu_set_t& allowed);

}  // namespace npu
