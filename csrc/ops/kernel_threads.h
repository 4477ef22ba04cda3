// How many threads a kernel may use.
#pragma once

#include <cstdint>

namespace npu {

enum class KernelSize : uint8_t {
  kSmall,  // one thread: waking others costs more than they save, and they
           // compete with the caller for the cores
  kLarge,  // its stream's share of the cores (core_share.h)
};

// Sets this thread's limit for torch's loops, OpenMP and the BLAS behind
// torch, until the next call. Costs nothing when it stays the same.
void use_threads_for(KernelSize size);

}  // namespace npu
