#include "csrc/placement/launcher_placement.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "csrc/base/clock.h"
#include "csrc/base/futex.h"
#include "csrc/placement/core_share.h"
#include "csrc/placement/openmp_crowd.h"
#include "csrc/placement/policy.h"

namespace npu {
namespace {

using tuning::kMostGivingWayNs;

// Normal launchers that sleep in give_way(), on any device.
std::atomic<int> sleeping_{0};

// This thread's; none where the system does not tell.
CoreWaits core_waits() {
  CoreWaits waits;
  uint64_t ran = 0;
  if (std::FILE* file = std::fopen("/proc/thread-self/schedstat", "re")) {
    if (std::fscanf(file, "%" SCNu64 " %" SCNu64 " %" SCNu64, &ran, &waits.ns,
                    &waits.times) != 3)
      waits = {};
    std::fclose(file);
  }
  return waits;
}

}  // namespace

LauncherPlacement::LauncherPlacement(int device, bool urgent)
    : device_(device), urgent_(urgent) {
  // Relaxed, as in works(): a count of its own.
  if (urgent_) urgent_at_work_[device_].fetch_add(1, std::memory_order_relaxed);
}

void LauncherPlacement::rests() {
  if (!urgent_) return;
  // Sequentially consistent, as in give_way(): of the two, at least one sees
  // the other. If neither did, the sleeper would only wake late.
  urgent_at_work_[device_].fetch_sub(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst))
    futex_wake_all(&urgent_at_work_[device_]);
}

void LauncherPlacement::works(uint64_t now, uint64_t tail) {
  others_.wakes(now, tail);
  // Before it was awake, it did not wait for a core.
  if (others_.asks(now)) others_.waited(now, core_waits());
  if (urgent_) urgent_at_work_[device_].fetch_add(1, std::memory_order_relaxed);
}

bool LauncherPlacement::need_all(int urgent) {
  return policy().needs_all(urgent, core_budget());
}

void LauncherPlacement::give_way() const {
  const uint64_t start = now_ns();
  std::atomic<int32_t>& at_work = urgent_at_work_[device_];
  sleeping_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const int32_t urgent = at_work.load(std::memory_order_seq_cst);
    const uint64_t slept = now_ns() - start;
    if (!need_all(urgent) || slept >= kMostGivingWayNs) break;
    futex_wait(&at_work, uint32_t(urgent), kMostGivingWayNs - slept);
  }
  sleeping_.fetch_sub(1, std::memory_order_relaxed);
}

void LauncherPlacement::look(uint64_t now, uint64_t tail) {
  if (!policy().on()) return;
  uint64_t until = others_.launches(now, tail);
  if (others_.asks(now))
    until = std::max(until, others_.waited(now, core_waits()));
  if (until) ask_for_openmp_crowd(now, until);
}

}  // namespace npu
