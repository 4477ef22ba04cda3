#include "csrc/taskqueue/idle_spin.h"

#include <algorithm>
#include <bit>

#include "csrc/placement/tuning.h"

namespace npu {
namespace {

using namespace tuning;

}  // namespace

IdleSpin::IdleSpin(uint64_t ticks_per_us)
    : ticks_per_us_(ticks_per_us), mean_gap_(kMaxSpinUs * ticks_per_us / 4) {}

uint64_t IdleSpin::begin() {
  const uint64_t most = kMaxSpinUs * ticks_per_us_;
  const uint64_t least = kMinSpinUs * ticks_per_us_;
  short_spin_ =
      mean_gap_ > most ? least : std::clamp(4 * mean_gap_, least, most);
  if (skipped_ > 0) {
    --skipped_;
    return 0;
  }
  return patience_ > 0 ? kPatientSpinUs * ticks_per_us_ : short_spin_;
}

void IdleSpin::looked(uint64_t ticks) {
  if (ticks > kPreemptedUs * ticks_per_us_) skipped_ = kSkipAfterPreemption;
}

void IdleSpin::found(uint64_t gap) {
  mean_gap_ = (7 * mean_gap_ + gap) / 8;
  if (gap > short_spin_) patience_ = std::min(patience_ + 1, kMostPatience);
}

void IdleSpin::slept(uint64_t gap) {
  const uint64_t most = 8 * kMaxSpinUs * ticks_per_us_;
  mean_gap_ = (7 * mean_gap_ + std::min(gap, most)) / 8;
  // In vain costs the other core more than in time saves.
  patience_ = gap < kPatientSpinUs * ticks_per_us_
                  ? std::min(patience_ + 1, kMostPatience)
                  : std::max(patience_ - 2, 0);
}

bool IdleSpin::awaited(uint64_t wanted, uint64_t next) {
  return wanted + kHurriedTasks > next;
}

uint64_t IdleSpin::rest_ns(uint64_t wanted, uint64_t next) {
  const uint64_t periods = (next - std::min(wanted, next)) / kHurriedTasks;
  const int fourfold = std::bit_width(periods) / 2;
  return kShortestRestNs << std::min(fourfold, kMostDoublings);
}

}  // namespace npu
