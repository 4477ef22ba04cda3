#include "csrc/placement/openmp_crowd.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "csrc/base/clock.h"
#include "csrc/base/futex.h"
#include "csrc/placement/policy.h"
#include "csrc/placement/service_thread.h"
#include "csrc/placement/tuning.h"

// These are present where torch was built with OpenMP. The last one is present
// only in LLVM's library, which does not count threads as libgomp does, and
// where omp_pause_resource_all() would end the teams of all threads.
extern "C" {
[[gnu::weak]] void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
[[gnu::weak]] int omp_pause_resource_all(int);
[[gnu::weak]] void __kmpc_fork_call(void*, int, void*, ...);
}

namespace npu {
namespace {

// All orders are relaxed: these are wishes and hints, the futex compares the
// value itself, and a caller that misses a change asks again 16 tasks later.
std::atomic<uint64_t> asked_until_{0}, used_at_{0};
std::atomic<bool> there_{false};
std::atomic<uint32_t> calls_{0};  // the thread sleeps until it changes
pthread_once_t once_ = PTHREAD_ONCE_INIT;

constexpr int kSoft = 1;  // omp_pause_soft

void work_on_nothing(void*) {}

// Until when a crowd makes sense: without a kernel that has a team, nobody
// spins. Now or earlier: it makes none.
uint64_t crowd_ends() {
  const uint64_t used = used_at_.load(std::memory_order_relaxed);
  return used ? std::min(asked_until_.load(std::memory_order_relaxed),
                         used + tuning::kTeamStaysNs)
              : 0;
}

void* keep_crowd(void*) {
  begin_service("npu-crowd");
  constexpr unsigned kTeam = 2;  // itself and one that libgomp counts
  for (;;) {
    const uint32_t calls = calls_.load(std::memory_order_relaxed);
    const uint64_t now = now_ns(), until = crowd_ends();
    const bool wanted = now < until;
    if (wanted != there_.load(std::memory_order_relaxed)) {
      there_.store(wanted, std::memory_order_relaxed);
      if (wanted)
        GOMP_parallel(&work_on_nothing, nullptr, kTeam, 0);
      else
        omp_pause_resource_all(kSoft);
    }
    futex_wait(&calls_, calls, wanted ? until - now : 0);
  }
}

// Where the thread cannot be started, everything works without it.
void start_crowd() { start_service(&keep_crowd, nullptr); }

bool is_libgomp() {
  return GOMP_parallel && omp_pause_resource_all && !__kmpc_fork_call;
}

}  // namespace

bool cores_are_wanted(uint64_t now) {
  return now < asked_until_.load(std::memory_order_relaxed);
}

bool openmp_team_spins() {
  return is_libgomp() && !cores_are_wanted(now_ns()) && openmp_team_was_used();
}

void note_openmp_team() { used_at_.store(now_ns(), std::memory_order_relaxed); }

bool openmp_team_was_used() {
  return now_ns() - used_at_.load(std::memory_order_relaxed) <
         tuning::kTeamStaysNs;
}

void run_in_openmp_team(int width, void (*work)(void*), void* context) {
  GOMP_parallel(work, context, unsigned(width), 0);
}

void ask_for_openmp_crowd(uint64_t now, uint64_t until) {
  if (asked_until_.load(std::memory_order_relaxed) < until)
    asked_until_.store(until, std::memory_order_relaxed);
  if (!is_libgomp() || there_.load(std::memory_order_relaxed) ||
      now >= crowd_ends())
    return;
  pthread_once(&once_, &start_crowd);
  calls_.fetch_add(1, std::memory_order_relaxed);
  futex_wake_all(&calls_);
}

void dismiss_openmp_team() {
  thread_local uint64_t next = 0;
  const uint64_t now = now_ns();
  if (!is_libgomp() || !policy().on() || now < next) return;
  next = now + tuning::kTeamPauseNs;
  omp_pause_resource_all(kSoft);
}

}  // namespace npu
