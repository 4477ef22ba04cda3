// Whether callers wait for each task that they launch. These are the settings;
// engine/blocking.h changes them, and tells the streams.
#pragma once

#include <atomic>

namespace npu {

// Whether launches of the whole process block. Relaxed: a launch that races
// with a change may go either way.
std::atomic<bool>& process_blocks();
// Whether those of the calling thread do.
bool& thread_blocks();

// Whether launches of the calling thread block, by either setting.
bool launch_blocks();

// Sets what launchers call once per sampled task, to see what an
// administrator's process has asked of this one. It never waits. Any thread.
void set_control_hook(void (*hook)());
void look_at_control();

}  // namespace npu
