#include "csrc/placement/urgency.h"

#include "csrc/base/clock.h"
#include "csrc/base/futex.h"
#include "csrc/placement/core_share.h"
#include "csrc/placement/this_machine.h"
#include "csrc/placement/tuning.h"

namespace npu {
namespace {

using tuning::kMostGivingWayNs;

// Normal launchers that sleep in give_way(), on any device.
std::atomic<int> sleeping_{0};

}  // namespace

bool detail::need_all(int urgent) {
  return policy().needs_all(urgent, core_budget());
}

void urgent_begins(int device) {
  // Relaxed: a count of its own.
  detail::urgent_at_work[device].fetch_add(1, std::memory_order_relaxed);
}

void urgent_ends(int device) {
  // Sequentially consistent, as in give_way(): of the two, at least one sees
  // the other. If neither did, the sleeper would only wake late.
  detail::urgent_at_work[device].fetch_sub(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst))
    futex_wake_all(&detail::urgent_at_work[device]);
}

void give_way(int device) {
  const uint64_t start = now_ns();
  sleeping_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const int32_t urgent =
        detail::urgent_at_work[device].load(std::memory_order_seq_cst);
    const uint64_t slept = now_ns() - start;
    if (!detail::need_all(urgent) || slept >= kMostGivingWayNs) break;
    futex_wait(&detail::urgent_at_work[device], uint32_t(urgent),
               kMostGivingWayNs - slept);
  }
  sleeping_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace npu
