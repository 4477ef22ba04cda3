#include "csrc/placement/idle_policy.h"

#include <algorithm>
#include <bit>

#include "csrc/placement/tuning.h"

namespace npu {
namespace {

using namespace tuning;

}  // namespace

IdlePolicy::IdlePolicy(uint64_t ticks_per_us)
    : ticks_per_us_(ticks_per_us),
      longest_rest_((kShortestRestNs << kMostDoublings) * ticks_per_us / 1000),
      mean_gap_(kMaxSpinUs * ticks_per_us / 4) {}

uint64_t IdlePolicy::begin() {
  const uint64_t most = kMaxSpinUs * ticks_per_us_;
  const uint64_t least = kMinSpinUs * ticks_per_us_;
  short_spin_ =
      mean_gap_ > most ? least : std::clamp(4 * mean_gap_, least, most);
  if (skipped_ > 0) {
    --skipped_;
    return 0;
  }
  return longest_rest_ +
         (patience_ > 0 ? kPatientSpinUs * ticks_per_us_ : short_spin_);
}

void IdlePolicy::looked(uint64_t ticks) {
  if (ticks > kPreemptedUs * ticks_per_us_) skipped_ = kSkipAfterPreemption;
}

uint64_t IdlePolicy::found(uint64_t now) {
  const uint64_t gap = now - start_;
  mean_gap_ = (7 * mean_gap_ + gap) / 8;
  if (gap > short_spin_) patience_ = std::min(patience_ + 1, kMostPatience);
  return gap;
}

void IdlePolicy::slept(uint64_t gap) {
  const uint64_t most = 8 * kMaxSpinUs * ticks_per_us_;
  mean_gap_ = (7 * mean_gap_ + std::min(gap, most)) / 8;
  // A patient spin that ends in sleep costs the other core more than one that
  // finds work saves, so patience falls by more than it rises.
  patience_ = gap < kPatientSpinUs * ticks_per_us_
                  ? std::min(patience_ + 1, kMostPatience)
                  : std::max(patience_ - 2, 0);
}

bool IdlePolicy::awaited(uint64_t wanted, uint64_t next) {
  return wanted + kHurriedTasks > next;
}

uint64_t IdlePolicy::rest_ns(uint64_t wanted, uint64_t next) {
  const uint64_t periods = (next - std::min(wanted, next)) / kHurriedTasks;
  const int fourfold = std::bit_width(periods) / 2;
  return kShortestRestNs << std::min(fourfold, kMostDoublings);
}

}  // namespace npu
