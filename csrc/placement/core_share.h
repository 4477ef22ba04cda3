// How many cores a kernel may use: what was asked for, whatever else runs. A
// sum that is computed in parts depends on their number, so a share that
// followed the load would change results with the load.
#pragma once

#include <cstdint>

namespace npu {

// No stream has an id as large as this.
inline constexpr int kMostStreamIds = 512;

// The most cores that a device uses: NPU_DISPATCH_CORES, or this process's part
// of the machine (Policy::part()) where it is not set.
int core_budget();

// Limits each kernel of one stream, or of a device where `stream` is negative.
// 0: no limit.
void set_core_limit(int device, int64_t stream, int cores);

// How many threads a kernel of that stream uses, of the `all` that torch would:
// the least of `all`, core_budget() and the limits of the device and stream.
// At least one.
int core_share(int all, int device, int64_t stream);
// The same for work that belongs to no stream.
int core_share(int all);

}  // namespace npu
