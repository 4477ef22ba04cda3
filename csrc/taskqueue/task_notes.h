// What is noted of a task that carries a stamp: one task in kSamplePeriod does
// for the statistics, and each one while somebody traces or profiles.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/driver/driver.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/task.h"

namespace npu {

class Stream;

// The name of the task's kernel; for a wait or a note of the time, which has no
// kernel, the name of its kind.
const char* name_of(const Task& task);

// Whether the task itself is work of the device. A wait, or a note of the time,
// has no kernel.
inline bool is_work(const Task& task) {
  return task.kernel && !(task.kernel->flags & kRunsKernels);
}

// The notes of one stream. Only the thread that runs its tasks uses them.
class TaskNotes {
 public:
  explicit TaskNotes(Stream& stream);

  // What is kept of a task while it runs; all times are ticks. No task begins
  // before it was submitted or before the end of the one before it.
  struct Running : TaskRun {
    uint32_t launch_ticks;
    uint32_t site;
    bool told;  // observers are told of its end
  };
  Running begins(const Task& task, uint64_t position, uint64_t begun);
  // To be called before the task's slot is given back. Also notices that
  // tracing begins or ends: while tracing is off, this is reached once per
  // sampled task.
  void ends(const Task& task, Running& running, uint64_t ended);
  // Counts a sampled task; called after its slot has been given back. Returns
  // the time on now_ns()'s clock.
  uint64_t count(const Running& running);

 private:
  void trace(const Task& task, const Running& running);

  Stream& stream_;
  const double ns_per_tick_;
  TickClock clock_;
  uint64_t last_end_ = 0;  // of a task with a stamp, in ticks
};

}  // namespace npu
