#include "csrc/placement/launcher_placement.h"

#include "csrc/base/clock.h"
#include "csrc/placement/openmp_crowd.h"
#include "csrc/placement/this_machine.h"

namespace npu {

LauncherPlacement::LauncherPlacement(int device, bool urgent)
    : device_(device), urgent_(urgent) {
  works();
}

LauncherPlacement::~LauncherPlacement() { rests(); }

void LauncherPlacement::rests() {
  if (urgent_) urgent_ends(device_);
}

void LauncherPlacement::works() {
  if (policy().on()) ask_for_openmp_crowd(now_ns());  // somebody has launched
  if (urgent_) urgent_begins(device_);
}

void LauncherPlacement::look(uint64_t now, uint64_t tail, int producer) {
  seat_.look(now, producer);
  // Since the last look somebody has launched, and needs a core to go on.
  if (tail != seen_ && policy().on()) ask_for_openmp_crowd(now);
  seen_ = tail;
}

}  // namespace npu
