// Keeps a thread from being woken up on the CPU of the thread that wakes it.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <utility>

namespace npu {

// Decides which CPUs a thread is to have while this program narrows them for a
// moment. Pure: it is told what the thread has, and says what to set.
//
// The kernel remembers one set of CPUs per thread. A set that is found there
// and was not put there by us comes from the thread's owner or a tool of theirs
// (taskset), and stays, even where it came while ours was in place. (A set
// equal to ours cannot be told from it.)
class AffinityLoan {
 public:
  // The thread is about to sleep, or sleeps; it has `seen`, and is not to be
  // woken on the CPU `waker`; -1: on any. Returns whether the caller has to
  // give it set().
  bool narrow(const cpu_set_t& seen, int waker);
  // The thread is awake and has `seen`. Returns whether the caller has to give
  // it owners() back.
  bool end(const cpu_set_t& seen);

  bool lent() const { return lent_; }
  // Whether the owner's CPUs have changed since this was last called.
  bool changed() { return std::exchange(changed_, false); }
  const cpu_set_t& set() const { return set_; }
  const cpu_set_t& owners() const { return owners_; }

 private:
  // Whether `seen` is what was lent; else it is the owner's from now on.
  bool is_ours(const cpu_set_t& seen);

  bool lent_ = false, changed_ = false;
  cpu_set_t set_{}, owners_{};
};

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

 private:
  // Restricts the sleeper to its allowed CPUs without `cpu`, if any is left.
  void avoid(int cpu);
  // The CPUs that the sleeper may run on now. False where they are not known,
  // or where placement is off.
  bool look(cpu_set_t& seen) const;

  pid_t sleeper_ = 0;
  int avoided_ = -1;  // the CPU of the last waker
  AffinityLoan loan_;
};

}  // namespace npu
