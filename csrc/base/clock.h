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

// Tells the core that this is a spin loop.
inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  asm volatile("yield");
#endif
}

}  // namespace npu
