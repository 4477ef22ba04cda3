// A task that runs more than a kernel: the replay of a graph, foreign work.
#pragma once

#include <cstdint>

#include "csrc/driver/driver.h"

namespace npu {

class DeviceQueue;
class Stream;

// Named by word 0 of a kProgram task; outlives every task that names it. What
// the stream was given before is done when run() is called. Both are called on
// the thread that executes `stream`'s tasks.
class Program {
 public:
  // Returns an npu_code; the failure's text names the launch that failed.
  virtual int run(Stream& stream, const DeviceQueue& queue,
                  const uint64_t* words, npu_failure& failure) = 0;
  // The task is given up without having run: its stream had failed before, or
  // an observer refused it, on the submitting thread then.
  virtual void dropped(Stream& stream, const uint64_t* words) = 0;

 protected:
  ~Program() = default;
};

}  // namespace npu
