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

// Sets what is called on a submitting thread after an inline stream has run a
// task there: it undoes what the task has set of the thread. Set once, when the
// module is loaded; may be null.
void set_after_direct_task_hook(void (*hook)());
void after_direct_task();

}  // namespace npu
