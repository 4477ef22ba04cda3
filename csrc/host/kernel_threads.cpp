#include "csrc/host/kernel_threads.h"

#include <ATen/Parallel.h>

#include "csrc/base/hooks.h"
#include "csrc/placement/core_share.h"
#include "csrc/placement/openmp_crowd.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

// The first two are present where torch was built with OpenMP, the others where
// it was built with MKL.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int);
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int);
[[gnu::weak]] int MKL_Get_Max_Threads();
[[gnu::weak]] int mkl_serv_get_dynamic();
}

namespace npu {
namespace {

// For torch's loops, and for MKL; 0: it chooses.
struct Threads {
  int omp, mkl;
  bool operator==(const Threads&) const = default;
};

struct ThreadLimit {
  int own;      // what the thread had before a task set anything
  int all;      // what the caller of the task that runs had at its launch
  Threads now;  // what a task has set; 0: nothing is set
  bool known;   // torch has given the thread its number
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

// How many threads MKL has where nobody tells it a number.
int mkl_threads_ = 0;

// A member of a team gets no threads of its own. MKL knows that where it may
// choose. Where it was told a number, its factorisations count on as many: they
// compute wrong numbers, or never end. So MKL chooses wherever it may, which is
// until torch.set_num_threads() is called in any thread of the process. Else
// only one of the two has several threads in a nested kernel.
Threads threads_for(KernelSize size, int share) {
  if (size == KernelSize::kSmall || share == 1) return {1, 1};
  const bool chooses = mkl_serv_get_dynamic && mkl_serv_get_dynamic();
  if (chooses && share == mkl_threads_) return {share, 0};
  return {size == KernelSize::kNested ? 1 : share, share};
}

// Returns the previous number of this thread for MKL, 0 for the process's.
int set_threads(Threads n) {
  if (omp_set_num_threads) omp_set_num_threads(n.omp);
  return MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(n.mkl) : 0;
}

// The caller's own cpu kernels use all of its threads again, as before a task
// of an inline stream.
void give_threads_back() {
  ThreadLimit& limit = limit_;
  if (!limit.now.omp) return;
  limit.now = {};
  set_threads({limit.own, 0});
}

}  // namespace

int launch_threads() {
  ThreadLimit& limit = limit_;
  return limit.now.omp ? limit.all : threads_now(limit);
}

void use_threads_for(KernelSize size, int all) {
  ThreadLimit& limit = limit_;
  if (!limit.now.omp) limit.own = threads_now(limit);
  limit.all = all;
  use_threads_for(size);
}

void use_threads_for(KernelSize size) {
  ThreadLimit& limit = limit_;
  const int share = size == KernelSize::kSmall ? 1 : core_share_here(limit.all);
  if (share > 1) note_openmp_team();
  const Threads wanted = threads_for(size, share);
  if (limit.now == wanted) return;
  limit.now = wanted;
  set_threads(wanted);
}

int threads_of_large_kernels() { return core_share_here(limit_.all); }

// It does not use use_threads_for(), which remembers what it has set for this
// thread: this thread goes back to its owner afterwards.
UseThreads::UseThreads(int n, KernelSize size)
    : before_(threads_now(limit_)),
      mkl_before_(set_threads(threads_for(size, n))) {}

UseThreads::~UseThreads() { set_threads({before_, mkl_before_}); }

ThreadsInPlaceOf::ThreadsInPlaceOf(Stream& stream, KernelSize size)
    : threads_(core_share(launch_threads(), stream.device(), stream.id()),
               size) {}

void install_thread_limits() {
  if (MKL_Get_Max_Threads) mkl_threads_ = MKL_Get_Max_Threads();
  hooks.after_direct_task = give_threads_back;
}

}  // namespace npu
