// Keeps launchers that are at work off each other's CPU.
//
// A launcher is not woken on its caller's CPU (placement/wake_placement.h). On
// a machine of two CPUs two launchers therefore share the other one, and the
// kernel may leave them there for tens of milliseconds after the caller sleeps.
#pragma once

#include <cstdint>

#include "csrc/placement/policy.h"

namespace npu {

// A launcher's place among the others of the process. Only the launcher's
// thread calls its functions.
class Seat {
 public:
  Seat();
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  // To be called now and then while at work. `now` is in ns on now_ns()'s
  // clock; `producer` is the CPU from which the launcher was woken last, or -1.
  // Moves the thread to where Policy::place() says, and returns that CPU, or -1
  // where it stays. The thread's allowed CPUs are the same afterwards.
  int look(uint64_t now, int producer);
  // The same for a thread that runs on `at.cpu`.
  int look(uint64_t now, Whereabouts at);

 private:
  const int seat_;
  uint64_t next_ = 0;
};

}  // namespace npu
