// Keeps a thread from being woken up on the CPU of the thread that wakes it.
#pragma once

#include <sched.h>
#include <sys/types.h>

namespace npu {

// A queue's consumer sleeps; its producer wakes it and goes on producing. In a
// virtual machine the kernel takes a halted CPU for a busy one, puts the woken
// thread on the producer's own CPU (299 times of 300, measured), and the two
// take turns until the next load balancing some milliseconds later. So a
// sleeper stays away from the CPU on which it was last woken, while it sleeps
// only: a longer restriction would be inherited by OpenMP's threads.
//
// The caller orders the calls: before_sleep(), then one before_wake() at most,
// then after_sleep(), each seeing the one before.
class WakePlacement {
 public:
  // The sleeper, before it sleeps and after it woke up.
  void before_sleep();
  void after_sleep();
  // The waker, while the other sleeps.
  void before_wake() {
    const int here = sched_getcpu();
    if (here != avoided_) [[unlikely]]
      avoid(here);
  }

 private:
  // Restricts the sleeper to its allowed CPUs without `cpu`, if any is left.
  void avoid(int cpu);

  pid_t sleeper_ = 0;
  int avoided_ = -1;
  bool restricted_ = false;
  cpu_set_t allowed_;
};

}  // namespace npu
