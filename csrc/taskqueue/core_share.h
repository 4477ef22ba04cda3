// How the streams that work at the same time share the cores.
#pragma once

#include <cstdint>

namespace npu {

class Stream;

// Those that this process may run on.
int usable_cores();

// NPU_DISPATCH_CORES: the most cores that a device uses; a large number unless
// set.
int core_budget();

// Limits the kernels of one stream, or of a device's streams together where
// `stream` is negative. 0: no limit.
void set_core_limit(int device, int64_t stream, int cores);

// How many threads a kernel that starts now may use, of the `all` that torch
// would: its device's cores (core_budget() and set_core_limit(), at first
// `all`) divided by the device's streams at work, and no more than its part of
// `all` and its stream's limit. At least one. Asked from a launcher; from
// another thread, as a device of its own.
int core_share(int all);

// Names the stream whose tasks the calling thread runs from now on.
void launch_on_this_thread(Stream& stream);
// That stream, or null.
Stream* stream_of_this_thread();

}  // namespace npu
