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

// All orders are relaxed: these are wishes and hints, the futex compares the
// value itself, and a caller that misses a change asks again 16 tasks later.
std::atomic<uint64_t> asked_until_{0}, used_at_{0};
std::atomic<bool> there_{false};
std::atomic<uint32_t> calls_{0};  // the thread sleeps until it changes
pthread_once_t once_ = PTHREAD_ONCE_INIT;

void work_on_nothing(void*) {}

void* keep_team(void*) {
  pthread_setname_np(pthread_self(), "npu-crowd");
  constexpr unsigned kTeam = 2;  // itself and one that libgomp counts
  constexpr int kSoft = 1;       // omp_pause_soft
  Crowd crowd;
  for (;;) {
    const uint32_t calls = calls_.load(std::memory_order_relaxed);
    const uint64_t asked = asked_until_.load(std::memory_order_relaxed);
    const uint64_t used = used_at_.load(std::memory_order_relaxed);
    const uint64_t now = now_ns();
    const Crowd::Step step = crowd.step(now, asked, used);
    there_.store(crowd.there(), std::memory_order_relaxed);
    if (step == Crowd::Step::kGather)
      GOMP_parallel(&work_on_nothing, nullptr, kTeam, 0);
    else if (step == Crowd::Step::kDisperse)
      omp_pause_resource_all(kSoft);
    futex_wait(&calls_, calls, crowd.again(now, asked, used));
  }
}

// Where the thread cannot be started, everything works without it.
void start() {
  const BlockedSignals blocked;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, &keep_team, nullptr) == 0)
    pthread_detach(thread);
}

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
      now >= Crowd::ends(until, used_at_.load(std::memory_order_relaxed)))
    return;
  pthread_once(&once_, &start);
  calls_.fetch_add(1, std::memory_order_relaxed);
  futex_wake_all(&calls_);
}

}  // namespace npu
