// Decides which CPUs a thread is to have while this program narrows them for a
// moment. Pure: it is told what the thread has, and says what to set.
#pragma once

#include <sched.h>

#include <utility>

namespace npu {

// The kernel remembers one set of CPUs per thread. A set that is found there
// and was not put there by us comes from the thread's owner or a tool of theirs
// (taskset), and stays, even where it came while ours was in place. (A set
// equal to ours cannot be told from it.)
class AffinityLoan {
 public:
  // The thread is about to sleep and has the CPUs `seen`.
  void begin(const cpu_set_t& seen);
  // The thread sleeps, has `seen`, and is not to be woken on `waker`. Returns
  // whether the caller has to give it set().
  bool narrow(const cpu_set_t& seen, int waker);
  // set() could not be given to the thread.
  void refused() { lent_ = false; }
  // The thread is awake and has `seen`. Returns whether the caller has to give
  // it owners() back.
  bool end(const cpu_set_t& seen);

  bool lent() const { return lent_; }
  // Whether the owner's CPUs have changed since this was last called.
  bool changed() { return std::exchange(changed_, false); }
  const cpu_set_t& set() const { return set_; }
  const cpu_set_t& owners() const { return owners_; }

 private:
  void owned_by(const cpu_set_t& seen);

  bool lent_ = false, changed_ = false;
  cpu_set_t set_{}, owners_{};
};

}  // namespace npu
