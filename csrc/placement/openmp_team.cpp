#include "csrc/placement/openmp_team.h"

#include "csrc/base/clock.h"
#include "csrc/placement/team_policy.h"
#include "csrc/placement/this_machine.h"

// The first is present where torch was built with OpenMP. In LLVM's library,
// told by the second, it would end the teams of all threads, and threads are
// not counted there.
extern "C" {
[[gnu::weak]] int omp_pause_resource_all(int);
[[gnu::weak]] void __kmpc_fork_call(void*, int, void*, ...);
}

namespace npu {

void dismiss_openmp_team() {
  constexpr int kSoft = 1;  // omp_pause_soft
  thread_local TeamEnds ends;
  if (!omp_pause_resource_all || __kmpc_fork_call || !policy().on()) return;
  if (ends.due(now_ns())) omp_pause_resource_all(kSoft);
}

}  // namespace npu
