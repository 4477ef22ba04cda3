// Keeps a thread from being woken up on the CPU of the thread that wakes it.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include "csrc/placement/affinity_loan.h"

namespace npu {

// A queue's consumer sleeps; its producer wakes it and goes on producing. In a
// virtual machine the kernel takes a halted CPU for a busy one, puts the woken
// thread on the producer's own CPU (299 times of 300, measured), and the two
// take turns until the next load balancing some milliseconds later. So a
// sleeper stays away from the CPU on which it was last woken, while it sleeps
// only: a longer restriction would be inherited by OpenMP's threads. Whoever
// gives the thread other CPUs meanwhile is obeyed (AffinityLoan).
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

  // The CPU of the last waker; -1: none yet. The sleeper, awake.
  int waker() const { return avoided_; }

 private:
  // Restricts the sleeper to its allowed CPUs without `cpu`, if any is left.
  void avoid(int cpu);
  void narrow(const cpu_set_t& seen);
  // What the sleeper may run on now; false: not known, or not our concern.
  bool look(cpu_set_t& seen) const;

  pid_t sleeper_ = 0;
  int avoided_ = -1;
  AffinityLoan loan_;
};

}  // namespace npu
