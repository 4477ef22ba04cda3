// A driver whose tasks end when the test says so, in the order in which they
// were started, whatever their queues.
#pragma once

#include <cstddef>

#pragma GCC visibility push(default)
namespace npu::by_hand {

// How many tasks each queue holds before it says that it is busy.
void set_room(size_t tasks);
// Waits until that many are in flight; fewer is returned after 30 s.
size_t wait_until_started(size_t tasks);
size_t in_flight();
// Runs the kernels of the oldest ones, and then reports how far each queue is.
void end(size_t tasks);
// Reports the oldest as failed.
void fail(const char* text);
// How often the engine has given a queue's tasks up; waits for at least that
// many, 30 s at most.
size_t wait_until_reset(size_t times);

}  // namespace npu::by_hand
#pragma GCC visibility pop
