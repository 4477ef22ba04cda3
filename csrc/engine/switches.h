// Switches that concern all streams of the process or of a device: whether
// launches block, and whether a device is stopped.
#pragma once

namespace npu {

class Stream;

// Makes launches of the whole process, or of the calling thread alone, block.
// The second returns what the thread's setting was before.
void set_launch_blocking(bool blocking);
bool set_thread_launch_blocking(bool blocking);
// Tells a stream whether any caller may block. Called under hold_streams().
void tell_blocking(Stream& stream);

// Drops all work of the device that has not begun: each of its streams fails
// with a FORCE STOP error, which frees blocked producers and waiters, and takes
// no more work until restart_device(). Never waits. Any thread.
//
// A task that has begun runs to its end, unless it asks device_stopped().
void stop_device(int device);

// Makes the device take work again. Waits until what was dropped has left the
// queues.
void restart_device(int device);

// Whether the device was stopped, or the process's exit no longer waits. Asked
// by tasks that wait for something themselves.
bool device_stopped(int device);

// Called at exit: ends such tasks on all devices, for good, two seconds from
// now.
void stop_waiting_tasks();

}  // namespace npu
