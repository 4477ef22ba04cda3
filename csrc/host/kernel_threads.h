// How many threads a kernel uses. As on cpu it is a matter of the calling
// thread: what torch.set_num_threads() has given it when it launches the
// kernel. A launcher's own number would follow what other threads have asked
// for before it started: the thread that pins the batches of a DataLoader asks
// for one.
#pragma once

#include <cstdint>

namespace npu {

class Stream;

enum class KernelSize : uint8_t {
  kSmall,   // one thread: waking others costs more than they save, and they
            // compete with the caller for the cores
  kLarge,   // its stream's share of the cores (core_share.h)
  kNested,  // the same for torch's loop over matrices, or for MKL, which it
            // calls for each of them, and never for both
};

// Elements up to which a kernel is small: torch's own loops over elements stay
// serial up to there.
inline constexpr int64_t kSmallKernel = 32768;
// The same for a fused loop: it needs 0.15 to 0.6 ns per element, and a team
// that sleeps 110 us to start and end. The team's threads then spin, and keep
// the core from the helper that has pieces of products.
inline constexpr int64_t kSmallLoop = 262144;

// How many threads torch gives to a kernel that this thread launches now. A
// task that launches others hands on what its own caller had.
int launch_threads();

// Sets this thread's limit for torch's loops, OpenMP and the BLAS behind
// torch, until the next call. `all`: launch_threads() of the task's caller.
// Costs nothing when it stays the same.
void use_threads_for(KernelSize size, int all);
// The same for a part of the task that runs.
void use_threads_for(KernelSize size);
// How many threads that would be for a large kernel.
int threads_of_large_kernels();

// While it exists, the thread's kernels have `n` threads.
class UseThreads {
 public:
  explicit UseThreads(int n, KernelSize size = KernelSize::kLarge);
  ~UseThreads();
  UseThreads(const UseThreads&) = delete;

 private:
  const int before_, mkl_before_;
};

// While it exists, a kernel that the caller runs in a stream's place has as
// many threads as on the stream's launcher. Its sums then have the same parts,
// so the first call of an operator gives what later ones give.
class ThreadsInPlaceOf {
 public:
  ThreadsInPlaceOf(Stream& stream, KernelSize size);

 private:
  const UseThreads threads_;
};

// Called once, while the module is loaded, by the thread that loads it: from
// then on a task of an inline
// stream leaves its caller's thread with the limit that it had.
void install_thread_limits();

}  // namespace npu
