// How many cores a kernel may use: what was asked for, whatever else runs. A
// sum in parts depends on how many there are, so a share that followed the load
// would change results with it.
#pragma once

#include <cstdint>

namespace npu {

class Stream;

// Those that this process may run on.
int usable_cores();

// NPU_DISPATCH_CORES: the most cores that a device uses; a large number unless
// set.
int core_budget();

// Limits each kernel of one stream, or of a device where `stream` is negative.
// 0: no limit.
void set_core_limit(int device, int64_t stream, int cores);

// How many threads a kernel that starts now uses, of the `all` that torch
// would: the least of `all`, core_budget() and the limits of the device and
// stream whose task the calling thread runs. At least one.
int core_share(int all);
// The same for a task of `stream`, or of none.
int core_share(int all, const Stream* stream);

// Names the stream whose tasks the calling thread runs from now on.
void launch_on_this_thread(Stream& stream);
// Called on a thread of the caller's when a task of a direct stream has run
// there: what it has set of the thread may be as before. While the module is
// loaded; may be null.
void set_after_direct_task_hook(void (*hook)());
void after_direct_task();

// That stream, or null.
Stream* stream_of_this_thread();

}  // namespace npu
