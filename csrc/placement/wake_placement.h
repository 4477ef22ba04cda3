// Keeps a thread from being woken up on the CPU of the thread that wakes it.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include "csrc/placement/affinity_loan.h"

namespace npu {

// A queue's consumer sleeps; its producer wakes it and goes on producing. In a
// virtual machine the kernel takes a halted CPU for a busy one, and almost
// always puts the woken thread on the producer's own CPU, where the two take
// turns until the next load balancing some milliseconds later. So a sleeper may
// not run on the CPU from which it was last woken, but only while it sleeps:
// OpenMP's threads would inherit a longer restriction. A change of the thread's
// CPUs by anybody else meanwhile is respected (AffinityLoan).
//
// The caller orders the calls: before_sleep(), then at most one before_wake(),
// then after_sleep(), each of which sees what the one before it did.
class WakePlacement {
 public:
  // Another thread is the sleeper from now on.
  void forget_sleeper() { sleeper_ = 0; }
  // Called by the sleeper, before it sleeps and after it woke up.
  void before_sleep();
  void after_sleep();
  // Called by the waker, while the other thread sleeps.
  void before_wake() {
    const int here = sched_getcpu();
    if (here != avoided_) [[unlikely]]
      avoid(here);
  }

  // The CPU of the last waker; -1: none yet. Only the sleeper calls it, awake.
  int waker() const { return avoided_; }

 private:
  // Restricts the sleeper to its allowed CPUs without `cpu`, if any is left.
  void avoid(int cpu);
  void narrow(const cpu_set_t& seen);
  // The CPUs that the sleeper may run on now. False where they are not known,
  // or where placement is off.
  bool look(cpu_set_t& seen) const;

  pid_t sleeper_ = 0;
  int avoided_ = -1;
  AffinityLoan loan_;
};

}  // namespace npu
