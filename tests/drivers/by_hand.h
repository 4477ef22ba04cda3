// A driver whose tasks end when the test says so, in the order in which they
// were started, whatever their queues.
#pragma once

#include <cstddef>

#pragma GCC visibility push(default)
namespace npu::by_hand {

// How many tasks all queues hold before they say that they are busy.
void set_room(size_t tasks);
// How often they have said so; waits for at least that many, 100 s at most.
size_t wait_until_busy(size_t times);
// With what outcome they refuse each kernel; NPU_OK: they take it.
void set_refusal(int code);
// Whether there is a queue for a further stream.
void set_queues(bool are_left);
// Waits until that many are in flight; fewer is returned after 100 s.
size_t wait_until_started(size_t tasks);
size_t in_flight();
// Runs the kernels of the oldest ones, and then reports how far each queue is.
// A queue whose kernel has failed stands still until it is reset.
void end(size_t tasks);
// The same on the calling thread, which runs nothing else; ends fewer where
// there are fewer.
void end_here(size_t tasks);
// Reports the oldest as failed.
void fail(const char* text, int code = 1);
// How often the engine has given a queue's tasks up; waits for at least that
// many, 100 s at most.
size_t wait_until_reset(size_t times);

}  // namespace npu::by_hand
#pragma GCC visibility pop
