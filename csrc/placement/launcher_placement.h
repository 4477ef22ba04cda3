// What a launcher thread does about the cores that it shares with the other
// launchers, with callers and with the teams of kernels.
#pragma once

#include <cstdint>

#include "csrc/placement/spread.h"
#include "csrc/placement/team_policy.h"
#include "csrc/placement/urgency.h"

namespace npu {

// The thread counts as working from the construction on. Only that thread calls
// the functions.
class LauncherPlacement {
 public:
  // `urgent`: the stream has a higher than normal priority.
  LauncherPlacement(int device, bool urgent);
  ~LauncherPlacement();
  LauncherPlacement(const LauncherPlacement&) = delete;

  // The thread is about to wait; the thread has waited.
  void rests();
  void works(uint64_t now, uint64_t tail);

  // Whether streams of higher priority need all cores now; waits until they do
  // not, or for a millisecond.
  bool gives_way() const { return !urgent_ && urgent_need_all(device_); }
  void give_way() const { npu::give_way(device_); }

  // To be called now and then while at work. `now` is on now_ns()'s clock,
  // `tail` is how many tasks have been submitted so far, and `producer` the CPU
  // from which the launcher was woken last, or -1.
  void look(uint64_t now, uint64_t tail, int producer);

 private:
  const int device_;
  const bool urgent_;
  Seat seat_;
  OtherWork others_;
};

}  // namespace npu
