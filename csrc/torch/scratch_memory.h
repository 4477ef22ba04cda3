// The large buffers that kernels allocate for themselves: work space, reordered
// operands, results that are copied where they belong afterwards.
//
// malloc() gives most of them back to the system at once, so that each launch
// of such a kernel pays a page fault per 4 KiB: a fifth of a ResNet's step.
// Here they are kept for the next kernel that asks for as much, as a device
// keeps work space.
#pragma once

#include <cstddef>

namespace npu {

// Below it malloc() has the memory at hand.
inline constexpr size_t kLeastScratch = size_t(128) << 10;

// While one lives, its thread is one that runs a kernel.
class RunsKernel {
 public:
  RunsKernel() : before_(on_this_thread_) { on_this_thread_ = true; }
  ~RunsKernel() { on_this_thread_ = before_; }
  RunsKernel(const RunsKernel&) = delete;

  static bool on_this_thread() { return on_this_thread_; }

 private:
  static inline thread_local bool on_this_thread_ = false;
  const bool before_;
};

// Memory of malloc()'s that was kept, for at least `bytes`; or null. Any
// thread.
void* take_scratch(size_t bytes);

// True: `memory`, of malloc()'s and no longer used, is kept; what has been kept
// longest is freed if that is more than is kept. False: it is not worth it.
// Any thread.
bool keep_scratch(void* memory);

// Frees all that is kept. Any thread.
void free_scratch();

}  // namespace npu
