#include "csrc/placement/openmp_crowd.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "csrc/base/blocked_signals.h"
#include "csrc/base/clock.h"
#include "csrc/base/futex.h"
#include "csrc/placement/team_policy.h"

// These are present where torch was built with OpenMP. The last one is present
// only in LLVM's library, which does not count threads as libgomp does.
extern "C" {
[[gnu::weak]] void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
[[gnu::weak]] int omp_pause_resource_all(int);
[[gnu::weak]] void __kmpc_fork_call(void*, int, void*, ...);
}

namespace npu {
namespace {

// How many threads ask for it. Relaxed: a wish orders nothing, and the futex
// compares the value itself.
std::atomic<uint32_t> wishes_{0};
pthread_once_t once_ = PTHREAD_ONCE_INIT;

void work_on_nothing(void*) {}

void* keep_team(void*) {
  pthread_setname_np(pthread_self(), "npu-crowd");
  constexpr unsigned kTeam = 2;  // itself and one that libgomp counts
  constexpr int kSoft = 1;       // omp_pause_soft
  Crowd crowd;
  for (;;) {
    const uint32_t wishes = wishes_.load(std::memory_order_relaxed);
    const uint64_t now = now_ns();
    switch (crowd.step(now, wishes)) {
      case Crowd::Step::kGather:
        GOMP_parallel(&work_on_nothing, nullptr, kTeam, 0);
        break;
      case Crowd::Step::kDisperse:
        omp_pause_resource_all(kSoft);
        break;
      case Crowd::Step::kNone: {
        const uint64_t again = crowd.again(wishes);
        futex_wait(&wishes_, wishes, again > now ? again - now : 0);
      }
    }
  }
}

// Where the thread cannot be started, everything works without it.
void start() {
  const BlockedSignals blocked;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, &keep_team, nullptr) == 0)
    pthread_detach(thread);
}

void wish(uint32_t change) {
  if (!GOMP_parallel || !omp_pause_resource_all || __kmpc_fork_call) return;
  wishes_.fetch_add(change, std::memory_order_relaxed);
  pthread_once(&once_, &start);
  futex_wake_all(&wishes_);
}

}  // namespace

void ask_for_openmp_crowd() { wish(1); }
void take_back_openmp_crowd() { wish(~uint32_t{0}); }

}  // namespace npu
