// How the C++ benchmarks measure: pinned threads, repetitions that count only
// while the two cores are near each other, medians, one JSON line per case.
// `--quick` makes fewer repetitions; `--smoke` a single one, which shows that
// the program runs and measures nothing.
#pragma once

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "bench/cpp/core_distance.h"
#include "csrc/base/align.h"
#include "csrc/base/clock.h"
#include "csrc/taskqueue/call_site.h"

namespace npu::bench {

// Two lines: the adjacent-line prefetcher pairs them.
inline constexpr size_t kApart = 2 * kCacheLine;

// The tasks that are measured name a call site, as those of operators do; what
// finding it costs is bench/enqueue.py's question.
inline constexpr CallSite kSite{1, 0};

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

enum class Effort { kFull, kQuick, kSmoke };
inline Effort effort = Effort::kFull;

// Reads the options, and prints a line about the run.
inline void begin(int argc, char** argv, const char* bench) {
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--quick")) effort = Effort::kQuick;
    if (!strcmp(argv[i], "--smoke")) effort = Effort::kSmoke;
  }
  constexpr const char* kNames[] = {"full", "quick", "smoke"};
  printf("{\"bench\": \"%s\", \"effort\": \"%s\", \"is_measurement\": %s}\n",
         bench, kNames[int(effort)],
         effort == Effort::kSmoke ? "false" : "true");
}

// How often to repeat what a full run repeats `full` times, and a quick one
// `quick` times.
inline int repetitions(int full, int quick) {
  return effort == Effort::kFull ? full : effort == Effort::kQuick ? quick : 1;
}

// What repetitions gave, by whether the cores were near before and after them.
struct Measured {
  std::vector<double> kept, left_out;

  // What the figures are of: those left out where none was kept.
  const std::vector<double>& counted() const {
    return kept.empty() ? left_out : kept;
  }
};

// Runs `body` until `n` repetitions began and ended with near cores, or six
// times as many were tried.
template <typename Body>
Measured repeat(int n, Body body, bool (*are_near)() = cores_are_near) {
  Measured found;
  bool near = are_near();
  const int most = effort == Effort::kSmoke ? n : 6 * n;
  for (int tries = 0; int(found.kept.size()) < n && tries < most; ++tries) {
    const double value = body();
    const bool was_near = near;
    near = are_near();
    (was_near && near ? found.kept : found.left_out).push_back(value);
  }
  return found;
}

// What a case is compared to, in the same run.
struct Floor {
  double value;
  const char* name;
};

// Prints a case and returns its median; with 0 kept, it is of those left out.
inline double report(const std::string& name, const char* unit,
                     const Measured& values, const Floor* floor = nullptr) {
  const std::vector<double>& counted = values.counted();
  const double m = median(counted);
  printf(
      "{\"case\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, "
      "\"min\": %.4g, \"max\": %.4g, \"kept\": %zu, \"left_out\": %zu",
      name.c_str(), unit, m, quantile(counted, 0), quantile(counted, 1),
      values.kept.size(), values.left_out.size());
  if (!values.left_out.empty())
    printf(", \"left_out_median\": %.4g", median(values.left_out));
  if (floor)
    printf(", \"ratio\": %.3f, \"ratio_to\": \"%s\"", m / floor->value,
           floor->name);
  printf("}\n");
  fflush(stdout);
  return m;
}

}  // namespace npu::bench
