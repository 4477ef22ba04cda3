// Time stamps: raw ticks on the hot path, nanoseconds for everybody else.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace npu {

// A raw tick of a counter that is monotonic and common to all cores. It is not
// a serialising instruction; the case rdtsc of bench/cpp says what it costs.
inline uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
#error "npu_dispatch needs a cycle counter: x86-64 or AArch64"
#endif
}

// The ticks from one reading to a later one, perhaps of another thread. 0 where
// the second is smaller: reading the counter is not ordered with the loads and
// stores that hand a task over, and cores may differ by some ticks.
inline uint64_t ticks_between(uint64_t from, uint64_t to) {
  return int64_t(to - from) > 0 ? to - from : 0;
}

// CLOCK_MONOTONIC in nanoseconds. Costs more than ticks(). Any thread.
uint64_t now_ns();

// CLOCK_REALTIME in nanoseconds. Any thread.
uint64_t unix_ns();

// CPU time that the calling thread has used, in nanoseconds.
uint64_t thread_cpu_ns();

// Nanoseconds per tick, measured once, at the first call (1 ms).
double ns_per_tick();

// Lengths of time.
inline uint64_t ticks_to_ns(uint64_t ticks) {
  return uint64_t(double(ticks) * ns_per_tick());
}
inline uint64_t ns_to_ticks(uint64_t ns) {
  return uint64_t(double(ns) / ns_per_tick());
}

// What now_ns() was at an earlier tick. A thread that loses its core meanwhile
// gets a later time, never an earlier one: the counter is read first.
inline uint64_t ns_at(uint64_t earlier) {
  const uint64_t gone = ticks_to_ns(ticks_between(earlier, ticks()));
  return now_ns() - gone;
}

template <class Outer, class Inner>
struct BothClocks {
  Outer outer;
  Inner inner;
};

// Reads two clocks at one moment: `inner` between two readings of `outer`.
// Takes the closest of several readings, since a thread may lose its core in
// between.
template <class Outer, class Inner>
auto read_both(Outer outer, Inner inner) {
  BothClocks<decltype(outer()), decltype(inner())> best{};
  uint64_t closest = UINT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const auto before = outer();
    const auto between = inner();
    const uint64_t apart = uint64_t(outer() - before);
    if (apart >= closest) continue;
    closest = apart;
    best = {before + apart / 2, between};
  }
  return best;
}

// CLOCK_MONOTONIC for one thread that reads ticks() anyway: read once a
// millisecond and continued by ticks in between. It is off by less than a
// microsecond, or behind by as long as the thread was preempted while it read
// the clock.
class TickClock {
 public:
  TickClock()
      : ns_per_tick_(ns_per_tick()), life_(uint64_t(1e6 / ns_per_tick_)) {}

  // The time at `tick`, which was read just now.
  uint64_t ns(uint64_t tick) {
    if (tick - tick_ < life_) [[likely]]
      return ns_ + uint64_t(double(tick - tick_) * ns_per_tick_);
    ns_ = now_ns();
    tick_ = ticks();
    return ns_;
  }

 private:
  const double ns_per_tick_;
  const uint64_t life_;
  uint64_t tick_ = 0, ns_ = 0;
};

// Tells the core that this is a spin loop.
inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("yield");
#endif
}

}  // namespace npu
