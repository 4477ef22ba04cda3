#include "csrc/placement/wake_placement.h"

#include <unistd.h>

#include "csrc/placement/policy.h"

namespace npu {
namespace {

// Tells the policy that the calling thread's CPUs have changed to `allowed`.
void cpus_have_changed(const cpu_set_t& allowed) {
  // Where this thread is bound to one CPU, its process may not be: the CPUs of
  // the first thread count, too.
  cpu_set_t first, all = allowed;
  if (sched_getaffinity(getpid(), sizeof first, &first) == 0)
    CPU_OR(&all, &allowed, &first);
  if (const int cpus = CPU_COUNT(&all); cpus > 0) policy().set_cpus(cpus);
}

}  // namespace

bool AffinityLoan::is_ours(const cpu_set_t& seen) {
  if (lent_ && CPU_EQUAL(&seen, &set_)) return true;
  if (!CPU_EQUAL(&owners_, &seen)) changed_ = true;
  owners_ = seen;
  return lent_ = false;
}

bool AffinityLoan::narrow(const cpu_set_t& seen, int waker) {
  is_ours(seen);
  if (waker < 0 || waker >= CPU_SETSIZE) return false;
  cpu_set_t on = owners_;
  CPU_CLR(size_t(waker), &on);
  if (!CPU_COUNT(&on) || CPU_EQUAL(&on, &owners_)) return false;
  set_ = on;
  return lent_ = true;
}

bool AffinityLoan::end(const cpu_set_t& seen) {
  const bool ours = is_ours(seen);
  lent_ = false;
  return ours;
}

bool WakePlacement::look(cpu_set_t& seen) const {
  return policy().on() && sched_getaffinity(sleeper_, sizeof seen, &seen) == 0;
}

void WakePlacement::before_sleep() {
  if (!sleeper_) sleeper_ = gettid();
  avoid(avoided_);
  if (loan_.changed()) cpus_have_changed(loan_.owners());
}

void WakePlacement::after_sleep() {
  cpu_set_t seen;
  if (!loan_.lent() || !look(seen)) return;
  if (loan_.end(seen))
    sched_setaffinity(sleeper_, sizeof seen, &loan_.owners());
  if (loan_.changed()) cpus_have_changed(loan_.owners());
}

void WakePlacement::avoid(int cpu) {
  avoided_ = cpu;
  cpu_set_t seen;
  // Where it fails, the thread keeps what it has, which end() finds.
  if (look(seen) && loan_.narrow(seen, cpu))
    sched_setaffinity(sleeper_, sizeof seen, &loan_.set());
}

}  // namespace npu
