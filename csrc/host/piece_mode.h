// The thread state in which a piece of a kernel is computed (shared_loop.h).
#pragma once

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "csrc/host/denormals.h"
#include "csrc/host/kernel_mode.h"
#include "csrc/host/kernel_threads.h"
#include "csrc/host/scratch_memory.h"

namespace npu {

// The same on each thread, which may have a state of its own: that of a caller
// who waits for the device, for instance in a functorch transform, under a
// profiler or with other numbers of threads.
class PieceMode {
 public:
  explicit PieceMode(bool flush) { flush_denormals(flush); }
  ~PieceMode() { flush_denormals(flushed_); }
  PieceMode(const PieceMode&) = delete;

 private:
  const bool flushed_ = flushes_denormals();
  const c10::impl::ForceDispatchKeyGuard fresh_{c10::default_included_set,
                                                c10::default_excluded_set};
  const KernelMode mode_;
  const RunsKernel here_;
  const at::RecordFunctionGuard unrecorded_{false};
  const UseThreads alone_{1};
};

}  // namespace npu
