#include "csrc/placement/launcher_placement.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "csrc/placement/openmp_crowd.h"
#include "csrc/placement/this_machine.h"

namespace npu {
namespace {

// This thread's; none where the system does not tell.
CoreWaits core_waits() {
  CoreWaits waits;
  uint64_t ran = 0;
  if (std::FILE* file = std::fopen("/proc/thread-self/schedstat", "re")) {
    if (std::fscanf(file, "%" SCNu64 " %" SCNu64 " %" SCNu64, &ran, &waits.ns,
                    &waits.times) != 3)
      waits = {};
    std::fclose(file);
  }
  return waits;
}

}  // namespace

LauncherPlacement::LauncherPlacement(int device, bool urgent)
    : device_(device), urgent_(urgent) {
  if (urgent_) urgent_begins(device_);
}

LauncherPlacement::~LauncherPlacement() { rests(); }

void LauncherPlacement::rests() {
  if (urgent_) urgent_ends(device_);
}

void LauncherPlacement::works(uint64_t now, uint64_t tail) {
  others_.wakes(now, tail);
  // Before it was awake, it did not wait for a core.
  if (others_.asks(now)) others_.waited(now, core_waits());
  if (urgent_) urgent_begins(device_);
}

void LauncherPlacement::look(uint64_t now, uint64_t tail, int producer) {
  seat_.look(now, producer);
  if (!policy().on()) return;
  uint64_t until = others_.launches(now, tail);
  if (others_.asks(now))
    until = std::max(until, others_.waited(now, core_waits()));
  if (until) ask_for_openmp_crowd(now, until);
}

}  // namespace npu
