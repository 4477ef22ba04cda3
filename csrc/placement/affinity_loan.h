// Which CPUs a thread is to have while somebody else has narrowed them for a
// moment. Pure: told what the thread has, says what to set.
#pragma once

#include <sched.h>

#include <utility>

namespace npu {

// The kernel remembers one set of CPUs per thread. What is found there and was
// not put there by us is its owner's, or his program's (taskset), and stays:
// also where it came while we had ours there. (One that is the same as ours
// cannot be told from it.)
class AffinityLoan {
 public:
  // The thread is going to sleep and has `seen`.
  void begin(const cpu_set_t& seen);
  // It sleeps, has `seen`, and is not to be woken on `waker`: whether to set
  // set().
  bool narrow(const cpu_set_t& seen, int waker);
  // It could not be set.
  void refused() { lent_ = false; }
  // It is awake and has `seen`: whether to give it owners() back.
  bool end(const cpu_set_t& seen);

  bool lent() const { return lent_; }
  // Whether the owner's CPUs are others than when this was last asked.
  bool changed() { return std::exchange(changed_, false); }
  const cpu_set_t& set() const { return set_; }
  const cpu_set_t& owners() const { return owners_; }

 private:
  void owned_by(const cpu_set_t& seen);

  bool lent_ = false, changed_ = false;
  cpu_set_t set_{}, owners_{};
};

}  // namespace npu
