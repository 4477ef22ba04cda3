#include "csrc/torch/kernel_threads.h"

#include <ATen/Parallel.h>

#include <atomic>

#include "csrc/placement/core_share.h"
#include "csrc/taskqueue/shared_loop.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

// The first is present where torch was built with OpenMP, the second where it
// was built with MKL.
extern "C" {
[[gnu::weak]] void omp_set_num_threads(int);
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int);
}

namespace npu {
namespace {

// How many threads torch gives to launchers; 0: no launcher has run a kernel
// yet. Relaxed: the number orders nothing.
std::atomic<int> launchers_have_{0};

struct ThreadLimit {
  ThreadLimit() {
    const Stream* stream = stream_of_this_thread();
    if (stream && stream->mode() == StreamMode::kQueued)
      launchers_have_.store(all, std::memory_order_relaxed);
  }
  // Reading it first makes torch apply torch.set_num_threads() to this thread.
  int all = at::get_num_threads();
  int now = all;
};
thread_local ThreadLimit limit_;

void set_threads(ThreadLimit& limit, int wanted) {
  if (limit.now == wanted) return;
  limit.now = wanted;
  if (omp_set_num_threads) omp_set_num_threads(wanted);
  // 0 goes back to the process-wide number.
  if (MKL_Set_Num_Threads_Local)
    MKL_Set_Num_Threads_Local(wanted == limit.all ? 0 : wanted);
}

void set_threads_now(int wanted) {
  if (omp_set_num_threads) omp_set_num_threads(wanted);
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(wanted);
}

// The caller's own cpu kernels use all of its threads again, as before a task
// of an inline stream.
void give_threads_back() { set_threads(limit_, limit_.all); }

}  // namespace

void use_threads_for(KernelSize size) {
  ThreadLimit& limit = limit_;
  // The caller may have given its thread another number since.
  if (!stream_of_this_thread() && limit.now == limit.all)
    limit.all = limit.now = at::get_num_threads();
  set_threads(limit,
              size == KernelSize::kSmall ? 1 : core_share_here(limit.all));
}

int threads_of_large_kernels() { return core_share_here(limit_.all); }

// It does not use use_threads_for(), which remembers what it has set for this
// thread: this thread goes back to its owner afterwards.
ThreadsInPlaceOf::ThreadsInPlaceOf(Stream& stream)
    : before_(at::get_num_threads()) {
  const int launchers = launchers_have_.load(std::memory_order_relaxed);
  const int wanted =
      core_share(launchers ? launchers : before_, stream.device(), stream.id());
  if (wanted != before_) set_threads_now(wanted);
}

ThreadsInPlaceOf::~ThreadsInPlaceOf() {
  if (at::get_num_threads() == before_) return;
  set_threads_now(before_);
  // 0 goes back to the process-wide number.
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(0);
}

void install_thread_limits() {
  set_after_direct_task_hook(&give_threads_back);
  set_helper_start_hook([] { set_threads_now(1); });
}

}  // namespace npu
