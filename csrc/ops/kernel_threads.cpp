#include "csrc/ops/kernel_threads.h"

#include <ATen/Parallel.h>

#include "csrc/taskqueue/core_share.h"

// Present where torch was built with OpenMP and with MKL.
extern "C" {
[[gnu::weak]] void omp_set_num_threads(int);
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int);
}

namespace npu {
namespace {

struct ThreadLimit {
  // Reading it first makes torch apply torch.set_num_threads() to this thread.
  const int all = at::get_num_threads();
  int now = all;
};

}  // namespace

void use_threads_for(KernelSize size) {
  thread_local ThreadLimit limit;
  const int wanted = size == KernelSize::kSmall ? 1 : core_share(limit.all);
  if (limit.now == wanted) return;
  limit.now = wanted;
  if (omp_set_num_threads) omp_set_num_threads(wanted);
  // 0 goes back to the process-wide number.
  if (MKL_Set_Num_Threads_Local)
    MKL_Set_Num_Threads_Local(wanted == limit.all ? 0 : wanted);
}

}  // namespace npu
