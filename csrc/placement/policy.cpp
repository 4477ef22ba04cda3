#include "csrc/placement/policy.h"

#include <climits>

#include "csrc/base/env.h"
#include "csrc/placement/tuning.h"

namespace npu {
namespace {

using namespace tuning;

// This process's part of the time that all of its group may spin.
uint64_t spin_budget(const Machine& machine) {
  return machine.quota.ns / kSpinPart / uint64_t(std::max(machine.sharers, 1));
}

// As many CPUs as the quota keeps busy.
int quota_cpus(const Quota& quota) {
  if (quota.ns == 0) return INT_MAX;
  return int((quota.ns + quota.period_ns - 1) / quota.period_ns);
}

// This process's part of the CPUs, which it may be bound to already.
int part_of(const Machine& machine) {
  if (machine.sharers <= 1) return INT_MAX;
  const int all = std::min(std::max(machine.cpus_of_all, machine.cpus),
                           quota_cpus(machine.quota));
  return std::max(1, std::min(all / machine.sharers, machine.cpus));
}

}  // namespace

Policy::Policy(const Machine& machine, bool on)
    : on_(on),
      limited_(machine.quota.ns > 0),
      quota_cpus_(quota_cpus(machine.quota)),
      part_(part_of(machine)),
      cpus_(machine.cpus),
      spins_(spin_budget(machine), limited_ ? machine.quota.period_ns : 1),
      fences_(kMostFences, kFenceWindowNs) {}

bool Policy::needs_all(int urgent, int budget) const {
  const int cpus = cpus_.load(std::memory_order_relaxed);
  return urgent > 0 && urgent >= std::min({cpus, quota_cpus_, budget});
}

uint64_t Policy::spin(uint64_t now, uint64_t ns) {
  if (!spins()) return 0;
  return limited_ ? spins_.take(now, ns) : ns;
}

void Policy::unused_spin(uint64_t taken_at, uint64_t ns) {
  if (limited_) spins_.give_back(taken_at, ns);
}

Policy& policy() {
  // Never destroyed: launchers outlive static destruction.
  static Policy* const instance =
      new Policy(this_machine(),
                 env_choice("NPU_DISPATCH_PLACEMENT", {"auto", "off"}) == 0);
  return *instance;
}

}  // namespace npu
