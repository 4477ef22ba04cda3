// The switches of torch's that kernels and shapes depend on, as they are when a
// call is made: they are part of the call's key.
#pragma once

#include <c10/core/DefaultDtype.h>

#include <atomic>
#include <cstdint>

#include "csrc/host/denormals.h"

namespace npu {

// A word of kBits: the default dtype in the low six, then whether this thread
// flushes denormal numbers, then the process's switches as last read.
struct LaunchState {
  static constexpr uint64_t kFlushDenormal = 1u << 6;
  static constexpr int kSwitches = 7, kBits = 11;

  static uint64_t now() {
    // Relaxed: a thread that changes a switch sees its own change, and other
    // threads have to synchronise with it in another way anyway.
    return uint64_t(c10::get_default_dtype_as_scalartype()) |
           (flushes_denormals() ? kFlushDenormal : 0) |
           switches_.load(std::memory_order_relaxed);
  }

  // Reads the process's switches anew. Called when one has changed.
  static void read_switches();

 private:
  static std::atomic<uint64_t> switches_;  // shifted by kSwitches
};

}  // namespace npu
