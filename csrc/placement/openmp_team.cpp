#include "csrc/placement/openmp_team.h"

#include "csrc/base/clock.h"
#include "csrc/placement/team_policy.h"
#include "csrc/placement/this_machine.h"

// Present where torch was built with OpenMP. LLVM's library, which offers the
// first too, ends the teams of all threads and has no such count.
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
