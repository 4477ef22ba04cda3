// How the streams that work at the same time share the cores.
#pragma once

namespace npu {

class Stream;

// How many threads a kernel that starts now may use, of the `all` that torch
// would: its device's cores (NPU_DISPATCH_CORES, at first `all`) divided by
// the device's streams at work, and no more than its part of `all`. At least
// one. Asked from a launcher; from another thread, as a device of its own.
int core_share(int all);

// Names the stream whose tasks the calling thread runs from now on.
void launch_on_this_thread(const Stream& stream);

}  // namespace npu
