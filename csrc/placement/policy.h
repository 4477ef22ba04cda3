// Makes every decision about cores: where launchers go, how many cores there
// are to share, how long to spin. Pure: it is told about a machine and about
// what happens there, and answers; it starts no thread, reads no clock and
// makes no system call. The rest of this folder asks it and does what it says.
//
// Any thread. All orders are relaxed: an answer from old values only costs
// time.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "csrc/placement/budget.h"
#include "csrc/placement/machine.h"

namespace npu {

// Where a launcher runs, and where its tasks come from.
struct Whereabouts {
  int cpu = -1;
  int producer = -1;  // the CPU that it was woken from; -1: not known
};

class Policy {
 public:
  // `on`: NPU_DISPATCH_PLACEMENT is not off. Where it is off, nobody chooses a
  // thread's CPUs and OpenMP's teams are left alone.
  Policy(const Machine& machine, bool on);

  bool on() const { return on_; }
  // The process may run on `cpus` CPUs from now on.
  void set_cpus(int cpus) { cpus_.store(cpus, std::memory_order_relaxed); }

  // Gives a launcher a place among the others of the process; -1: there is none
  // left.
  int take_seat();
  void leave_seat(int seat);
  // Where the launcher in `seat`, which works on `at.cpu` now, has to go. Where
  // another launcher works on that CPU too, this is the nearest CPU on which
  // none does. -1: it stays.
  int place(int seat, uint64_t now, const Whereabouts& at,
            const cpu_set_t& allowed, const Topology& topology);
  // The first half of place(), which does not need the allowed CPUs: notes
  // where the launcher works, and returns whether it has to go.
  bool crowded(int seat, uint64_t now, int cpu);

  // The CPUs out of `allowed` on which a thread may be woken by another that
  // runs on `waker`. False: on all of them.
  static bool woken_on(const cpu_set_t& allowed, int waker, cpu_set_t& on);

  // How many cores a kernel uses at most where nobody set a number: a large
  // number, or this process's part where it has sharers, at least one. It does
  // not follow changes of the process's CPUs, so that sums in parts repeat.
  int part() const { return part_; }
  // How many threads a kernel uses, of the `all` that torch would, within
  // limits that somebody set; 0: no limit.
  static int share(int all, int budget, int device, int stream);
  // Whether `urgent` urgent launchers need all cores, of which there are
  // `budget` at most.
  bool needs_all(int urgent, int budget) const;

  // How long of `ns` a thread may spin. It gives back what it does not use.
  uint64_t spin(uint64_t now, uint64_t ns);
  void unused_spin(uint64_t taken_at, uint64_t ns);
  // Whether spin() uses `now`.
  bool spin_is_limited() const { return limited_; }
  // Whether anybody may spin. On a single CPU a thread that spins keeps the
  // thread that it waits for from running.
  bool spins() const { return cpus_.load(std::memory_order_relaxed) > 1; }

  // Whether a thread may call membarrier(2) now, in order to sleep until it is
  // woken. Else it sleeps for a fixed time.
  bool may_fence(uint64_t now) { return fences_.take(now, 1); }

 private:
  static constexpr int kSeats = 64;

  struct Seat {
    std::atomic<bool> used{false};
    std::atomic<int> cpu{-1};         // at the last look
    std::atomic<uint64_t> looked{0};  // when
  };

  // The CPU on which the launcher in the seat works; -1: none.
  int works_on(int seat, uint64_t now) const;

  const bool on_, limited_;
  const uint32_t seed_;
  const int part_;
  std::atomic<int> cpus_;
  int quota_cpus_;  // as many as the quota keeps busy
  Budget spins_, fences_;
  Seat seats_[kSeats];
};

}  // namespace npu
