// Foreign work: what is no operator of ours, but a function that somebody gives
// to a stream as a task. Other libraries do so through npu_dispatch.h, Python
// through Stream.submit(), and so do our own collectives.
#pragma once

#include <string_view>
#include <vector>

#include "csrc/base/hooks.h"
#include "csrc/driver/driver.h"

namespace npu {

class Stream;

// What a piece of work touches, for observers.
struct ForeignView {
  const void* address;
  std::vector<int64_t> sizes, strides;
  uint32_t itemsize;
  uint8_t access;  // NPU_READ | NPU_WRITE
};

struct ForeignWork {
  const char* name;  // from intern_name()
  // Called on the thread that executes the stream's tasks, with `number`.
  // Returns an npu_code.
  int (*run)(void* state, uint64_t number, npu_failure& failure);
  // Called exactly once: after run(), or instead of it. For captured work,
  // which runs at each replay, it is called when the graph is destroyed. Any
  // thread.
  void (*release)(void* state);
  void* state;
  std::vector<ForeignView> views;
  uint64_t number = 0;
  // Of captured work whose every replay has a number of its own: where the
  // graph takes them, and `number` is the place there, both from
  // Capture::draw(). Else -1.
  int source = -1;
  // It may wait for other processes, which wait for what this one does next.
  bool waits_for_peers = false;
};

// A copy of the name that lives as long as the process, one per name.
const char* intern_name(std::string_view name);

// Queues the work; any thread. False: the work has been released, because the
// stream has failed or belongs to a forked process's parent. Throws when the
// wait for space or for the task is interrupted, or an observer refuses; the
// work has then been released or queued. Throws CaptureError where a capturing
// stream takes no work. A capturing stream takes a kernel that runs the work.
bool submit_foreign(Stream& stream, ForeignWork work);

// How a graph keeps the kernel, where that is of such work.
OwnKernel captured_work(const npu_kernel* kernel);

}  // namespace npu
