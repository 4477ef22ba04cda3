// How the C++ benchmarks measure: pinned threads, repetitions that count only
// while the two cores are near each other, medians, one JSON line per case.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/align.h"
#include "csrc/base/clock.h"
#include "csrc/base/core_distance.h"

namespace npu::bench {

// Two lines: the adjacent-line prefetcher pairs them.
inline constexpr size_t kApart = 2 * kCacheLine;

inline void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

inline void keep(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

inline double elapsed_ns(uint64_t from, uint64_t to) {
  return double(to - from) * ns_per_tick();
}

inline double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[size_t(q * double(values.size() - 1))];
}
inline double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}

// The measuring thread has CPU 0, its counterpart CPU 1.
inline bool cores_are_near() { return is_near(1); }

// Runs `body` until `n` repetitions began and ended with near cores, or six
// times as many were tried. Returns what the repetitions returned.
template <typename Body>
std::vector<double> repeat(int n, Body body) {
  std::vector<double> good, all;
  bool near = cores_are_near();
  for (int tries = 0; int(good.size()) < n && tries < 6 * n; ++tries) {
    const double value = body();
    const bool was_near = near;
    near = cores_are_near();
    all.push_back(value);
    if (was_near && near) good.push_back(value);
  }
  return int(good.size()) < n ? all : good;
}

// Prints a case and returns its median. `floor`: the value it is compared to.
inline double report(const char* name, const char* unit,
                     const std::vector<double>& values, double floor = 0,
                     const char* floor_name = nullptr) {
  const double m = median(values);
  printf(
      "{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, "
      "\"min\": %.4g, \"max\": %.4g, \"n\": %zu",
      name, unit, m, quantile(values, 0), quantile(values, 1), values.size());
  if (floor_name)
    printf(", \"ratio\": %.3f, \"ratio_to\": \"%s\"", m / floor, floor_name);
  printf("}\n");
  fflush(stdout);
  return m;
}

}  // namespace npu::bench
