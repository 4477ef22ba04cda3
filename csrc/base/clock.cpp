#include "csrc/base/clock.h"

#include <time.h>

#include "csrc/base/both_clocks.h"

namespace npu {

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000u + uint64_t(now.tv_nsec);
}

uint64_t unix_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000u + uint64_t(now.tv_nsec);
}

double ns_per_tick() {
  static const double value = [] {
    const auto first = read_both(ticks, now_ns);
    while (now_ns() - first.inner < 1'000'000) {
    }
    const auto last = read_both(ticks, now_ns);
    return double(last.inner - first.inner) / double(last.outer - first.outer);
  }();
  return value;
}

}  // namespace npu
