// What a launcher thread does about the cores that it shares with the other
// launchers, with callers and with the teams of kernels.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/placement/tuning.h"
#include "csrc/stats/layout.h"

namespace npu {

// How long a thread has waited for a core in all, and how often it got one.
struct CoreWaits {
  uint64_t ns = 0, times = 0;
};

// From what a launcher sees: until when somebody else needs a core, so that no
// thread of a team may spin; 0: nobody is known to. Pure: it is told the time.
class OtherWork {
 public:
  // The launcher goes on after a pause, where `tail` tasks have been submitted.
  // The pause counts unless it was long.
  void wakes(uint64_t now, uint64_t tail) {
    if (!often(now, tail)) begin(now, tail);
  }
  // A caller that launches one task after the other.
  uint64_t launches(uint64_t now, uint64_t tail) {
    if (tail - tail_ < tuning::kManyLaunches) return 0;
    const bool is_often = often(now, tail);
    begin(now, tail);
    return is_often ? now + tuning::kCrowdStaysNs : 0;
  }

  // Whether it is time to ask how long the launcher has waited for a core.
  bool asks(uint64_t now) const {
    return now - asked_ >= tuning::kBetweenWaitsNs;
  }
  // Another process that has work for the launcher's core, twice in a row, and
  // keeps it for long. The team's own threads, which sleep after each loop, do
  // not keep it, and where they begin to spin they soon have another.
  uint64_t waited(uint64_t now, const CoreWaits& waits) {
    const uint64_t ns = waits.ns - waits_.ns,
                   times = waits.times - waits_.times;
    const bool shared = ns * tuning::kWaitPart > now - asked_ &&
                        ns > times * tuning::kLongWaitNs;
    waits_ = waits;
    asked_ = now;
    const bool again = shared && shared_;
    shared_ = shared;
    return again ? now + tuning::kNeighboursStayNs : 0;
  }

 private:
  bool often(uint64_t now, uint64_t tail) const {
    return now - from_ < (tail - tail_) * tuning::kSeldomNs;
  }
  void begin(uint64_t now, uint64_t tail) {
    from_ = now;
    tail_ = tail;
  }

  uint64_t from_ = 0, tail_ = 0;  // of the launches that it counts
  uint64_t asked_ = 0;
  CoreWaits waits_;  // until then
  bool shared_ = false;
};

// The thread counts as working from the construction on. Only that thread calls
// the functions.
class LauncherPlacement {
 public:
  // `urgent`: the stream has a higher than normal priority.
  LauncherPlacement(int device, bool urgent);
  ~LauncherPlacement() { rests(); }
  LauncherPlacement(const LauncherPlacement&) = delete;

  // The thread is about to wait; the thread has waited.
  void rests();
  void works(uint64_t now, uint64_t tail);

  // Whether urgent streams need all cores of the device now. Asked before every
  // task. Relaxed: a preference orders nothing, and a task that starts too
  // early or too late is as right as any other.
  bool gives_way() const {
    if (urgent_) return false;
    const int32_t urgent =
        urgent_at_work_[device_].load(std::memory_order_relaxed);
    return urgent > 0 && need_all(urgent);
  }
  // Sleeps until they do not, for a millisecond at most: an urgent task may be
  // waiting, in somebody else's code, for a task of this stream.
  void give_way() const;

  // To be called now and then while at work. `now` is on now_ns()'s clock,
  // `tail` is how many tasks have been submitted so far.
  void look(uint64_t now, uint64_t tail);

 private:
  static bool need_all(int urgent);

  // By device: how many launchers of urgent streams have something to run now.
  static inline std::atomic<int32_t> urgent_at_work_[kMaxDeviceBlocks]{};

  const int device_;
  const bool urgent_;
  OtherWork others_;
};

}  // namespace npu
