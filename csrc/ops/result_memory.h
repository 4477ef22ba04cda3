// Lets a kernel that allocates its results itself find the memory that was
// taken for them already.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu {

// For kernels that allocate nothing that outlives them but their results.
// While it lives, this thread's cpu allocations of exactly the size of one of
// the large `results` get that result's memory, in order, once each. Without
// it such a result costs a page fault per 4 KiB and a copy.
//
// A scratch buffer of the same size may get it too, and a result may land in
// another one's memory: whoever stores the results afterwards must expect that
// they overlap.
class ResultMemory {
 public:
  explicit ResultMemory(at::TensorList results);
  ~ResultMemory();
  ResultMemory(const ResultMemory&) = delete;

  // Makes torch's cpu allocator ask, at the first call. Before any launcher
  // runs a kernel, so that it is not exchanged under one.
  static void install();
};

}  // namespace npu
