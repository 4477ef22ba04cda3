// Changes whether callers wait for each task that they launch
// (taskqueue/launch_blocking.h).
#pragma once

namespace npu {

class Stream;

// Makes launches of the whole process, or of the calling thread alone, block.
// The second returns what the thread's setting was before.
void set_launch_blocking(bool blocking);
bool set_thread_launch_blocking(bool blocking);
// Tells a stream whether any caller may block. Called under hold_streams().
void tell_blocking(Stream& stream);

// Does what an administrator's process has asked of this one through
// ControlBlock since the last call. The control hook; never waits.
void obey_control();

}  // namespace npu
