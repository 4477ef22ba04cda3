#include "csrc/placement/wake_placement.h"

#include <unistd.h>

namespace npu {

void WakePlacement::before_sleep() {
  if (!sleeper_) sleeper_ = gettid();
  restricted_ = false;
  // Every time: somebody may have moved the thread.
  if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0)
    CPU_ZERO(&allowed_);
  if (avoided_ >= 0) avoid(avoided_);
}

void WakePlacement::after_sleep() {
  if (restricted_) sched_setaffinity(sleeper_, sizeof allowed_, &allowed_);
}

void WakePlacement::avoid(int cpu) {
  avoided_ = cpu;
  if (cpu >= CPU_SETSIZE) return;
  cpu_set_t others = allowed_;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) == 0) return;
  restricted_ =
      sched_setaffinity(sleeper_, sizeof others, &others) == 0 || restricted_;
}

}  // namespace npu
