// A point in a stream: which stream, and how many of its tasks.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/taskqueue/host_wait.h"

namespace npu {

class Stream;

// Where a queued task leaves the time. The event and the task share it, because
// the event may be destroyed first.
class TimeCell {
 public:
  // One cell with two holders, the event and the task.
  static TimeCell* make() { return new TimeCell; }

  // Called by the task: notes the time and releases the cell.
  void set(uint64_t ns) {
    note(ns);
    release();
  }
  // Called by a graph at each replay: notes the time and keeps the cell.
  void note(uint64_t ns) {
    // Relaxed: readers have waited for the task itself.
    ns_.store(ns, std::memory_order_relaxed);
  }
  uint64_t ns() const { return ns_.load(std::memory_order_relaxed); }
  void release() {
    // Acquire-release: the last holder deletes after the other's last use.
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  std::atomic<uint64_t> ns_{0};
  std::atomic<int> holders_{2};
};

enum class Timing { kOff, kOn };

// Not thread-safe: concurrent record() calls on one event are the caller's
// race, as on CUDA. Everything else may be called from any thread.
class Event {
 public:
  explicit Event(Timing timing) : timing_(timing) {}
  ~Event() {
    seen_done();
    forget();
  }
  Event(const Event&) = delete;

  // Marks the work submitted to `stream` so far. Costs a load, and with timing
  // a queued task. False when the stream has failed (the event is unchanged).
  bool record(Stream& stream);

  bool recorded() const { return stream_ != nullptr; }
  bool timing() const { return timing_ == Timing::kOn; }
  Stream* stream() const { return stream_; }
  uint64_t number() const { return number_; }

  // True when never recorded. Does not wait. An event with timing that was
  // recorded in a capture is done once a replay has reached it; one without
  // timing counts as done at once.
  bool done() const;
  // The calling thread waits until the event is done. Returns at once for an
  // event that was never recorded, and for one recorded in a capture: there,
  // wait for the replay's stream instead.
  void synchronize() const;
  // The time of the record in ns of CLOCK_MONOTONIC. The event has been
  // recorded with timing and is done.
  uint64_t time_ns() const { return cell_->ns(); }

 private:
  void forget();
  void count_record(bool first);
  // Notes that the event was seen done. Until then it counts as pending.
  void seen_done() const;

  const Timing timing_;
  Stream* stream_ = nullptr;
  uint64_t number_ = 0;
  TimeCell* cell_ = nullptr;
  // Relaxed: statistics order nothing.
  mutable std::atomic<bool> pending_{false};
};

}  // namespace npu
