#include "csrc/base/clock.h"

#include <time.h>

namespace npu {
namespace {

uint64_t ns_of(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000u + uint64_t(now.tv_nsec);
}

}  // namespace

uint64_t now_ns() { return ns_of(CLOCK_MONOTONIC); }
uint64_t unix_ns() { return ns_of(CLOCK_REALTIME); }
uint64_t thread_cpu_ns() { return ns_of(CLOCK_THREAD_CPUTIME_ID); }

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
