// Whose tasks the calling thread runs.
#pragma once

namespace npu {

class Stream;

// Names the stream whose tasks the calling thread runs from now on.
void launch_on_this_thread(Stream& stream);
// That stream, or null.
Stream* stream_of_this_thread();

// How many threads a kernel that starts now on this thread uses, of the `all`
// that torch would (placement/core_share.h).
int core_share_here(int all);

// Called on a thread of the caller's when a task of a direct stream has run
// there: what it has set of the thread may be as before. While the module is
// loaded; may be null.
void set_after_direct_task_hook(void (*hook)());
void after_direct_task();

}  // namespace npu
