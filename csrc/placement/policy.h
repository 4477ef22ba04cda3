// Decides how many cores there are to share, and how much spinning and
// interrupting a process may do. Policy is pure: it is told about a machine and
// the time, and answers; it starts no thread, reads no clock and makes no
// system call. The rest of this folder asks it and does what it says.
//
// Any thread. All orders are relaxed: an answer from old values only costs
// time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/placement/machine.h"

namespace npu {

// Limits how much of something is used in each window of time. What is taken at
// the end of a window may be used in the next one.
class Budget {
 public:
  Budget(uint64_t per_window, uint64_t window_ns)
      : most_(std::min<uint64_t>(per_window, UINT32_MAX)),
        window_ns_(window_ns) {}

  // Takes up to `wanted` from what is left in the window of `now`; returns how
  // much.
  uint64_t take(uint64_t now, uint64_t wanted) {
    uint64_t seen = state_.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t begun = at(now, seen);
      const uint64_t got = std::min(wanted, most_ - uint32_t(begun));
      if (!got || state_.compare_exchange_weak(seen, begun + got,
                                               std::memory_order_relaxed))
        return got;
    }
  }
  // Gives back what was taken and not used, if its window has not ended.
  void give_back(uint64_t taken_at, uint64_t unused) {
    uint64_t seen = state_.load(std::memory_order_relaxed);
    while (seen >> 32 == uint32_t(taken_at / window_ns_) &&
           !state_.compare_exchange_weak(
               seen, seen - std::min<uint64_t>(unused, uint32_t(seen)),
               std::memory_order_relaxed)) {
    }
  }

 private:
  // The state at time `now`. A thread may read its clock before another and use
  // it after that one, so a `now` a little in the past leaves the newer window
  // in place. A window's number has 32 bits and wraps, so it is compared by
  // difference; the first one may have any number.
  uint64_t at(uint64_t now, uint64_t state) const {
    constexpr uint32_t kLate = 1000;
    const auto window = uint32_t(now / window_ns_);
    const uint32_t behind = uint32_t(state >> 32) - window;
    return behind < kLate ? state : uint64_t{window} << 32;
  }

  const uint64_t most_, window_ns_;
  // The window's number, and below it what has been taken.
  std::atomic<uint64_t> state_{0};
};

class Policy {
 public:
  // `on`: NPU_DISPATCH_PLACEMENT is not off. Where it is off, nobody chooses a
  // thread's CPUs and OpenMP's teams are left alone.
  Policy(const Machine& machine, bool on);

  bool on() const { return on_; }
  // The process may run on `cpus` CPUs from now on.
  void set_cpus(int cpus) { cpus_.store(cpus, std::memory_order_relaxed); }

  // How many cores a kernel uses at most where nobody set a number: a large
  // number, or this process's part where it has sharers, at least one. It does
  // not follow changes of the process's CPUs, so that sums in parts repeat.
  int part() const { return part_; }
  // Whether `urgent` urgent launchers need all cores, of which there are
  // `budget` at most.
  bool needs_all(int urgent, int budget) const;

  // How long of `ns` a thread may spin. It gives back what it does not use.
  uint64_t spin(uint64_t now, uint64_t ns);
  void unused_spin(uint64_t taken_at, uint64_t ns);
  // Whether spin() returns `ns`, whatever the time.
  bool spins_freely() const { return spins() && !limited_; }

  // Whether a thread may call membarrier(2) now, in order to sleep until it is
  // woken. Else it sleeps for a fixed time.
  bool may_fence(uint64_t now) { return fences_.take(now, 1); }

 private:
  // On a single CPU a thread that spins keeps the thread that it waits for from
  // running.
  bool spins() const { return cpus_.load(std::memory_order_relaxed) > 1; }

  const bool on_, limited_;
  const int quota_cpus_;  // as many as the quota keeps busy
  const int part_;
  std::atomic<int> cpus_;
  Budget spins_, fences_;
};

// The policy of this process. It is made at its first use, from
// NPU_DISPATCH_PLACEMENT and the machine as it is then; it does not see a quota
// that changes later.
Policy& policy();

// Exists while a thread spins. It reads no clock where spinning is free.
class SpinGrant {
 public:
  explicit SpinGrant(uint64_t ticks) : ticks_(ticks) {
    Policy& p = policy();
    if (p.spins_freely()) [[likely]]
      return;
    began_ = now_ns();
    ns_ = p.spin(began_, ticks_to_ns(ticks));
    ticks_ = ns_to_ticks(ns_);
  }
  ~SpinGrant() {
    if (!ns_) [[likely]]
      return;
    const uint64_t spun = now_ns() - began_;
    if (spun < ns_) policy().unused_spin(began_, ns_ - spun);
  }
  SpinGrant(const SpinGrant&) = delete;

  // For how long: at most what was asked for; 0: not at all.
  uint64_t ticks() const { return ticks_; }

 private:
  uint64_t ticks_;
  uint64_t began_ = 0, ns_ = 0;  // what was taken; 0: nothing
};

}  // namespace npu
