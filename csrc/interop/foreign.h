// Foreign work: what is no operator of ours, but a function that somebody gives
// to a stream as a task. Other libraries do, through npu_dispatch.h, and
// Python's Stream.submit(), and our collectives.
#pragma once

#include <string_view>
#include <vector>

#include "csrc/driver/driver.h"

namespace npu {

class Stream;

// What a piece of work touches, for observers.
struct ForeignView {
  const void* address;
  std::vector<int64_t> sizes, strides;
  uint16_t itemsize;
  uint8_t access;  // NPU_READ | NPU_WRITE
};

struct ForeignWork {
  const char* name;  // of intern_name()
  // On the thread that executes the stream's tasks. Returns an npu_code.
  int (*run)(void* state, npu_failure& failure);
  // Called exactly once: after run(), or instead of it. Of captured work, which
  // runs at each replay, when its graph goes. On any thread.
  void (*release)(void* state);
  void* state;
  std::vector<ForeignView> views;
};

// A copy of the name that lives as long as the process, one per name.
const char* intern_name(std::string_view name);

// Queues the work; any thread. False: it is released already, because the
// stream has failed or belongs to a forked process's parent. Throws, with the
// work released or queued, when the wait for space or for the task is
// interrupted or an observer refuses, and CaptureError where a capturing stream
// takes no work. A capturing stream takes a kernel that runs the work.
bool submit_foreign(Stream& stream, ForeignWork work);

// What ends such a kernel; null for kernels of other kinds.
using KernelEnd = void (*)(npu_kernel*);
KernelEnd end_of_foreign(const npu_kernel* kernel);

}  // namespace npu
