// What a launcher thread does about the cores that it shares with the other
// launchers, with callers and with the teams of kernels.
#pragma once

#include <cstdint>

#include "csrc/placement/busy_caller.h"
#include "csrc/placement/spread.h"
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
  void works();
  // The thread is about to sleep: it takes back what it asked of others.
  void sleeps() { make_room(false); }

  // Whether streams of higher priority need all cores now; waits until they do
  // not, or for a millisecond.
  bool gives_way() const { return !urgent_ && urgent_need_all(device_); }
  void give_way() const { npu::give_way(device_); }

  // To be called now and then while at work. `now` is on now_ns()'s clock,
  // `tail` and `waiting` are BusyCaller::look()'s, and `producer` is the CPU
  // from which the launcher was woken last, or -1.
  void look(uint64_t now, uint64_t tail, bool waiting, int producer);

 private:
  // Passes on whether callers need a core beside this stream's kernels.
  void make_room(bool needed);

  const int device_;
  const bool urgent_;
  Seat seat_;
  BusyCaller callers_;
  bool made_room_ = false;
};

}  // namespace npu
