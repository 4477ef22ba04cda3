// Gives a kernel that allocates its results itself the memory that was taken
// for them already.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu {

// It is for kernels of which nothing but their results outlives them. While it
// exists, cpu allocations of this thread with exactly the size of one of the
// large `results` get that result's memory, in order, once each. Without it
// such a result would cost a page fault per 4 KiB and a copy.
//
// A scratch buffer of the same size may get the memory, too, and a result may
// get another result's memory: whoever stores the results afterwards must
// expect that they overlap.
class ResultMemory {
 public:
  explicit ResultMemory(at::TensorList results);
  ~ResultMemory();
  ResultMemory(const ResultMemory&) = delete;

  // The first call makes torch's cpu allocator ask here. It must come before
  // any launcher runs a kernel, which must not see the allocator change.
  static void install();
};

}  // namespace npu
