#include "csrc/placement/wake_placement.h"

#include <unistd.h>

#include "csrc/placement/this_machine.h"

namespace npu {

bool WakePlacement::look(cpu_set_t& seen) const {
  return policy().on() && sched_getaffinity(sleeper_, sizeof seen, &seen) == 0;
}

void WakePlacement::before_sleep() {
  if (!sleeper_) sleeper_ = gettid();
  cpu_set_t seen;
  if (!look(seen)) return;
  loan_.begin(seen);
  if (loan_.changed()) cpus_have_changed(loan_.owners());
  if (avoided_ >= 0) narrow(seen);
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
  if (cpu_set_t seen; look(seen)) narrow(seen);
}

void WakePlacement::narrow(const cpu_set_t& seen) {
  if (loan_.narrow(seen, avoided_) &&
      sched_setaffinity(sleeper_, sizeof seen, &loan_.set()) != 0)
    loan_.refused();
}

}  // namespace npu
