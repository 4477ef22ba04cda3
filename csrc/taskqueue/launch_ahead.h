// Runs a stream's tasks on a device where they end after their start has
// returned: starts what it can, and retires in order what has ended. A task
// keeps its slot, and so its words, until it has ended.
//
// A kernel is started while earlier ones are still in flight. A time is noted
// when all tasks before the note have ended. The executor runs every other
// task, and only once nothing is in flight: such a task may wait for another
// stream, which may be waiting for what was in flight.
#pragma once

#include <cstdint>

#include "csrc/taskqueue/device_queue.h"
#include "csrc/taskqueue/executor.h"

namespace npu {

// The launcher's thread.
class LaunchAhead {
 public:
  LaunchAhead(Stream& stream, Executor& executor, InFlight& in_flight);

  // Runs what is queued until nothing is queued and nothing is in flight.
  void run_queued();

 private:
  // What became of the oldest task that has not been started.
  enum class Next { kStarted, kNone, kHeldBack };

  bool alone() const { return ring_.front_position() == launched_; }
  InFlight::Flight& flight(uint64_t position) {
    return in_flight_.flights[position % ring_.capacity()];
  }
  Next launch_next();
  Next start(Task& task);
  void has_started();
  void retire_ended();
  bool note_stated_time(Task& task, uint64_t position);
  void retire(Task& task, uint64_t position);
  void show(uint64_t position);
  void give_up_flights();
  void wait_for_report(Next next);

  Stream& stream_;
  Executor& executor_;
  InFlight& in_flight_;
  Ring<Task>& ring_;
  // Positions from the ring's front up to this one have been started.
  uint64_t launched_;
  uint64_t last_end_ = 0;  // ticks when a task was last retired
};

}  // namespace npu
