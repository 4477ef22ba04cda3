// A task that runs more than a kernel: the replay of a graph, foreign work.
#pragma once

#include <cstdint>

#include "csrc/driver/driver.h"

namespace npu {

class DeviceQueue;
class Stream;

// Word 0 of a kProgram task names it; it outlives every task that does. What
// the stream was given before is done when run() is called. run() is called on
// the thread that executes `stream`'s tasks.
class Program {
 public:
  // Returns an npu_code; the failure's text names the launch that failed.
  virtual int run(Stream& stream, const DeviceQueue& queue,
                  const uint64_t* words, npu_failure& failure) = 0;
  // Called where the task is given up without having run: on the thread that
  // executes the tasks, where the stream had failed before; on the submitting
  // thread, where an observer refused the task.
  virtual void dropped(Stream& stream, const uint64_t* words) = 0;

 protected:
  ~Program() = default;
};

// A kernel for whose task others wait, though not for its stream: dropped() is
// called instead of run() where the task, or the node of a replay, is given up,
// because `stream` has failed. Its flags include kHasDrop.
struct KernelWithDrop : npu_kernel {
  void (*dropped)(const Stream& stream, const uint64_t* words);
};

inline void drop_kernel(const npu_kernel& kernel, const Stream& stream,
                        const uint64_t* words) {
  if (kernel.flags & kHasDrop)
    static_cast<const KernelWithDrop&>(kernel).dropped(stream, words);
}

}  // namespace npu
