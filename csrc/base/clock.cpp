#include "csrc/base/clock.h"

#include <time.h>

namespace npu {

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000u + uint64_t(now.tv_nsec);
}

double ns_per_tick() {
  static const double value = [] {
    const uint64_t ns0 = now_ns(), t0 = ticks();
    uint64_t ns1;
    do {
      ns1 = now_ns();
    } while (ns1 - ns0 < 1'000'000);
    return double(ns1 - ns0) / double(ticks() - t0);
  }();
  return value;
}

}  // namespace npu
