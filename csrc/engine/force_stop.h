// Stops a device from outside, while its queues may be blocked.
#pragma once

namespace npu {

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
