#include "csrc/base/clock.h"

#include <time.h>

namespace npu {

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000u + uint64_t(now.tv_nsec);
}

namespace {

struct Moment {
  uint64_t ns, tick, width;
};

// Reads both clocks at one moment: the closest of several readings, because an
// interrupt between the two would make the counter look slower or faster.
Moment read_both() {
  Moment best{0, 0, UINT64_MAX};
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = ticks(), ns = now_ns(), width = ticks() - before;
    if (width < best.width) best = {ns, before + width / 2, width};
  }
  return best;
}

}  // namespace

double ns_per_tick() {
  static const double value = [] {
    const Moment first = read_both();
    while (now_ns() - first.ns < 1'000'000) {
    }
    const Moment last = read_both();
    return double(last.ns - first.ns) / double(last.tick - first.tick);
  }();
  return value;
}

}  // namespace npu
