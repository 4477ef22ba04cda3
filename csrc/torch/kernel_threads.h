// Limits how many threads a kernel uses.
#pragma once

#include <cstdint>

namespace npu {

class Stream;

enum class KernelSize : uint8_t {
  kSmall,  // one thread: waking others costs more than they save, and they
           // compete with the caller for the cores
  kLarge,  // its stream's share of the cores (core_share.h)
};

// Elements up to which a kernel is small: torch's own loops over elements stay
// serial up to there.
inline constexpr int64_t kSmallKernel = 32768;

// Sets this thread's limit for torch's loops, OpenMP and the BLAS behind
// torch, until the next call. Costs nothing when it stays the same.
void use_threads_for(KernelSize size);
// How many threads that would be for a large kernel.
int threads_of_large_kernels();

// While it exists, a kernel that the caller runs in a stream's place has as
// many threads as on the stream's launcher. Its sums then have the same parts,
// so the first call of an operator gives what later ones give.
class ThreadsInPlaceOf {
 public:
  explicit ThreadsInPlaceOf(Stream& stream);
  ~ThreadsInPlaceOf();
  ThreadsInPlaceOf(const ThreadsInPlaceOf&) = delete;

 private:
  const int before_;
};

// Called once, while the module is loaded: from then on a task of an inline
// stream leaves its caller's thread with the limit that it had.
void install_thread_limits();

}  // namespace npu
