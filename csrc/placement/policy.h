// Every decision about cores: where launchers go, how many cores there are to
// share, how long to spin. Pure: it is told of a machine and of what is seen,
// and answers; it starts no thread, reads no clock and calls no system. The
// rest of this folder asks it and does what it says, and so does a simulation
// of machines that we do not have (tests/cpp/placement).
//
// Any thread. Relaxed throughout: what is out of date costs time only.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "csrc/placement/budget.h"
#include "csrc/placement/machine.h"

namespace npu {

// Where a launcher is, and who feeds it.
struct Whereabouts {
  int cpu = -1;
  int producer = -1;  // the CPU that it was woken from; -1: not known
};

class Policy {
 public:
  // `on`: NPU_DISPATCH_PLACEMENT is not off. Off, no thread's CPUs are chosen
  // and nobody spins; priorities and limits that were asked for stay.
  Policy(const Machine& machine, bool on);

  bool on() const { return on_; }
  // The process may run on so many CPUs by now.
  void set_cpus(int cpus) { cpus_.store(cpus, std::memory_order_relaxed); }

  // A launcher's place among the others of the process; -1: too many.
  int take_seat();
  void leave_seat(int seat);
  // Where the launcher in `seat`, which works on `at.cpu` now, is to go: where
  // another works there too, to the nearest CPU on which none does. -1: it
  // stays.
  int place(int seat, uint64_t now, const Whereabouts& at,
            const cpu_set_t& allowed, const Topology& topology);
  // The first half of it, before anybody asks what is allowed: notes where it
  // works; whether it is to go.
  bool crowded(int seat, uint64_t now, int cpu);

  // What a thread that is allowed some CPUs may be woken on by one that runs on
  // `waker`; false: on all of them.
  static bool woken_on(const cpu_set_t& allowed, int waker, cpu_set_t& on);

  // How many threads a kernel uses, of the `all` that torch would, within
  // limits that somebody set; 0: no limit.
  static int share(int all, int budget, int device, int stream);
  // Whether so many urgent launchers need all cores, `budget` of them at most.
  bool needs_all(int urgent, int budget) const;

  // How long of `ns` a thread may spin; what it did not use, it gives back.
  uint64_t spin(uint64_t now, uint64_t ns);
  void unused_spin(uint64_t taken_at, uint64_t ns);
  // Whether spin() asks for the time at all.
  bool spin_is_limited() const { return limited_; }
  // Nobody spins: it would keep from its core whoever is waited for.
  bool spins() const {
    return on_ && cpus_.load(std::memory_order_relaxed) > 1;
  }

  // Whether a launcher may sleep with a membarrier(2) now. Else it takes a nap.
  bool may_fence(uint64_t now) { return fences_.take(now, 1); }

 private:
  static constexpr int kSeats = 64;

  struct Seat {
    std::atomic<bool> used{false};
    std::atomic<int> cpu{-1};         // at the last look
    std::atomic<uint64_t> looked{0};  // when
  };

  // Whether a launcher in the seat works on some CPU; which.
  int works_on(int seat, uint64_t now) const;

  const bool on_, limited_;
  const uint32_t seed_;
  std::atomic<int> cpus_;
  int quota_cpus_;  // as many as the quota keeps busy
  Budget spins_, fences_;
  Seat seats_[kSeats];
};

}  // namespace npu
