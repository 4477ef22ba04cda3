#include "csrc/placement/launcher_placement.h"

#include "csrc/placement/openmp_crowd.h"
#include "csrc/placement/this_machine.h"

namespace npu {

LauncherPlacement::LauncherPlacement(int device, bool urgent)
    : device_(device), urgent_(urgent) {
  works();
}

LauncherPlacement::~LauncherPlacement() {
  rests();
  make_room(false);
}

void LauncherPlacement::rests() {
  if (urgent_) urgent_ends(device_);
}

void LauncherPlacement::works() {
  if (urgent_) urgent_begins(device_);
}

void LauncherPlacement::look(uint64_t now, uint64_t tail, bool waiting,
                             int producer) {
  seat_.look(now, producer);
  make_room(callers_.look(now, tail, waiting));
}

void LauncherPlacement::make_room(bool needed) {
  if (needed == made_room_ || !policy().on()) return;
  made_room_ = needed;
  if (needed) {
    ask_for_openmp_crowd();
  } else {
    take_back_openmp_crowd();
  }
}

}  // namespace npu
