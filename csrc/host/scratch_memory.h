// Keeps the large buffers that kernels allocate for themselves: work space,
// reordered operands, results that are copied to their place afterwards.
//
// malloc() gives most of them back to the system at once, so that each launch
// of such a kernel would pay a page fault per 4 KiB (bench/train.py, case cnn).
// Here they are kept for the next kernel that asks for as much, as a device
// keeps work space.
#pragma once

#include <cstddef>

namespace npu {

// The smallest buffer that is kept; malloc() keeps smaller ones itself.
inline constexpr size_t kLeastScratch = size_t(128) << 10;

// Lives while its thread runs a kernel.
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

// A kept buffer of malloc() with at least `bytes`, or null. Any thread.
void* take_scratch(size_t bytes);

// Keeps `memory`, which malloc() returned and nobody uses any more. Frees the
// buffers that were kept for longest where all together are too large. False:
// the buffer was not worth keeping, and stays the caller's. Any thread.
bool keep_scratch(void* memory);

// Frees all kept buffers. Any thread.
void free_scratch();

}  // namespace npu
