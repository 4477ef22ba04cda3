#include "csrc/placement/openmp_team.h"

#include <cstdint>

#include "csrc/base/clock.h"

// Present where torch was built with OpenMP. LLVM's library, which offers the
// first too, ends the teams of all threads and has no such count.
extern "C" {
[[gnu::weak]] int omp_pause_resource_all(int);
[[gnu::weak]] void __kmpc_fork_call(void*, int, void*, ...);
}

namespace npu {

void dismiss_openmp_team() {
  constexpr uint64_t kPauseNs = 100'000'000;
  constexpr int kSoft = 1;  // omp_pause_soft
  thread_local uint64_t next = 0;
  if (!omp_pause_resource_all || __kmpc_fork_call) return;
  const uint64_t now = now_ns();
  if (now < next) return;
  next = now + kPauseNs;
  omp_pause_resource_all(kSoft);
}

}  // namespace npu
