// Whether callers wait for each task that they launch.
#pragma once

namespace npu {

class Stream;

// Those of the whole process, or the calling thread alone. The second returns
// what it was before.
void set_launch_blocking(bool blocking);
bool set_thread_launch_blocking(bool blocking);
// Either of the two, for the calling thread.
bool launch_blocks();

// Tells a stream that is being made. Under hold_streams().
void tell_blocking(Stream& stream);

// Does what an administrator's process has asked of this one, through
// ControlBlock, since the last call, if anything. Launchers, once per sampled
// task; never waits.
void obey_control();

}  // namespace npu
