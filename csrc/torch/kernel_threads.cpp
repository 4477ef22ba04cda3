#include "csrc/torch/kernel_threads.h"

#include <ATen/Parallel.h>

#include "csrc/placement/core_share.h"
#include "csrc/placement/openmp_crowd.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

// The first two are present where torch was built with OpenMP, the third where
// it was built with MKL.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int);
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int);
}

namespace npu {
namespace {

struct ThreadLimit {
  int own;     // what the thread had before a task set anything
  int all;     // what the caller of the task that runs had at its launch
  int now;     // what a task has set; 0: nothing is set
  bool known;  // torch has given the thread its number
};
constinit thread_local ThreadLimit limit_{};

// What the thread has now. Where torch has not given it a number yet, which it
// does in a thread's first kernel, asking for it does so.
int threads_now(ThreadLimit& limit) {
  if (limit.known && omp_get_max_threads) [[likely]]
    return omp_get_max_threads();
  limit.known = true;
  return at::get_num_threads();
}

// Returns the previous number of this thread for MKL, 0 for the process's.
int set_threads(int omp, int mkl) {
  if (omp_set_num_threads) omp_set_num_threads(omp);
  return MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(mkl) : 0;
}

// The caller's own cpu kernels use all of its threads again, as before a task
// of an inline stream.
void give_threads_back() {
  ThreadLimit& limit = limit_;
  if (!limit.now) return;
  limit.now = 0;
  set_threads(limit.own, 0);
}

}  // namespace

int launch_threads() {
  ThreadLimit& limit = limit_;
  return limit.now ? limit.all : threads_now(limit);
}

void use_threads_for(KernelSize size, int all) {
  ThreadLimit& limit = limit_;
  if (!limit.now) limit.own = threads_now(limit);
  limit.all = all;
  use_threads_for(size);
}

void use_threads_for(KernelSize size) {
  ThreadLimit& limit = limit_;
  const int wanted =
      size == KernelSize::kSmall ? 1 : core_share_here(limit.all);
  if (wanted > 1) note_openmp_team();
  if (limit.now == wanted) return;
  limit.now = wanted;
  set_threads(wanted, wanted);
}

int threads_of_large_kernels() { return core_share_here(limit_.all); }

// It does not use use_threads_for(), which remembers what it has set for this
// thread: this thread goes back to its owner afterwards.
UseThreads::UseThreads(int n)
    : before_(threads_now(limit_)), mkl_before_(set_threads(n, n)) {}

UseThreads::~UseThreads() { set_threads(before_, mkl_before_); }

ThreadsInPlaceOf::ThreadsInPlaceOf(Stream& stream)
    : threads_(core_share(launch_threads(), stream.device(), stream.id())) {}

void install_thread_limits() { set_after_direct_task_hook(&give_threads_back); }

}  // namespace npu
