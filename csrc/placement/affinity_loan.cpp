#include "csrc/placement/affinity_loan.h"

#include "csrc/placement/policy.h"

namespace npu {

void AffinityLoan::begin(const cpu_set_t& seen) {
  lent_ = false;
  owned_by(seen);
}

bool AffinityLoan::narrow(const cpu_set_t& seen, int waker) {
  if (!lent_ || !CPU_EQUAL(&seen, &set_)) {
    lent_ = false;
    owned_by(seen);
  }
  cpu_set_t on;
  if (!Policy::woken_on(owners_, waker, on)) return false;
  set_ = on;
  return lent_ = true;
}

bool AffinityLoan::end(const cpu_set_t& seen) {
  const bool ours = lent_ && CPU_EQUAL(&seen, &set_);
  lent_ = false;
  if (!ours) owned_by(seen);
  return ours;
}

void AffinityLoan::owned_by(const cpu_set_t& seen) {
  if (CPU_EQUAL(&owners_, &seen)) return;
  owners_ = seen;
  changed_ = true;
}

}  // namespace npu
