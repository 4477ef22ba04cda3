// What is noted of a task that carries a stamp: of every 34th or so for the
// statistics, of each while somebody traces or profiles.
#pragma once

#include <cstdint>

#include "csrc/base/tick_clock.h"
#include "csrc/taskqueue/task.h"

namespace npu {

class Stream;
class StreamProfile;

// What tasks and waits are called where their kernel has no name of its own.
const char* name_of(const Task& task);

// One stream's. The thread that runs the stream's tasks.
class TaskNotes {
 public:
  explicit TaskNotes(Stream& stream);

  // What is kept of a task while it runs; all times are ticks.
  struct Running {
    uint64_t position, stamp, begun;
    uint32_t launch_ticks;
    const char* name;
    StreamProfile* profile;  // null where it is not profiled
  };
  Running begins(const Task& task, uint64_t position, uint64_t begun);
  // Before its slot is given back. Also notices that tracing begins or ends:
  // this is reached once per sampled task while it is off.
  void ends(const Task& task, const Running& running, uint64_t ended);
  // Of a sampled task, after its slot has been given back. Returns the time on
  // now_ns()'s clock.
  uint64_t count(const Running& running, uint64_t ended);

 private:
  void trace(const Task& task, const Running& running, uint64_t ended);

  Stream& stream_;
  const double ns_per_tick_;
  TickClock clock_;
};

}  // namespace npu
