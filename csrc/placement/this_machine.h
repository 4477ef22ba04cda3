// This machine, as the policy sees it.
#pragma once

#include "csrc/placement/policy.h"

namespace npu {

// The policy of this process. It is made at its first use, from
// NPU_DISPATCH_PLACEMENT and the machine as it is then; it does not see a quota
// that changes later.
Policy& policy();

// The machine's topology. It is read at the first use, which takes a
// millisecond for a hundred CPUs.
const Topology& topology();

// How many cores the calling thread may run on.
int usable_cores();

// Tells the policy that the calling thread's CPUs have changed to `allowed`.
void cpus_have_changed(const cpu_set_t& allowed);

}  // namespace npu
