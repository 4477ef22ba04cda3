#include "csrc/placement/shared_loop.h"

#include <algorithm>
#include <atomic>

#include "csrc/base/clock.h"
#include "csrc/placement/helper.h"
#include "csrc/placement/openmp_crowd.h"
#include "csrc/placement/service_thread.h"
#include "csrc/placement/tuning.h"

namespace npu {
namespace {

constexpr int kMostHelpers = 63, kMostWaiting = 8;
Helper helpers_[kMostHelpers], waiting_[kMostWaiting];
// How many helpers have been started, and when a loop was last shared. Relaxed:
// a helper's word orders its use.
std::atomic<int> started_{0};
std::atomic<uint64_t> shared_at_{0};

uint64_t spin_until(uint64_t now) {
  return now + (cores_are_wanted(now) ? tuning::kHelperSpinNs
                                      : tuning::kWaitingHelperSpinNs);
}

void* help(void* place) {
  begin_service("npu-helper");
  Helper& helper = *static_cast<Helper*>(place);
  for (uint64_t spins_until = 0;;) {
    if (helper.help())
      spins_until = spin_until(now_ns());
    else if (now_ns() < spins_until)
      pause();
    else
      helper.sleep();
  }
}

// False: the system gives no thread. The place then stays as it is, and nobody
// takes what is offered there.
bool start(Helper& helper) {
  helper.come();
  return start_service(&help, &helper);
}

// Returns how many helpers there are of `wanted`.
int start(int wanted) {
  for (int n; (n = started_.load(std::memory_order_relaxed)) < wanted;)
    if (started_.compare_exchange_strong(n, n + 1, std::memory_order_relaxed) &&
        !start(helpers_[n]))
      return n;
  return wanted;
}

}  // namespace

void run_shared(int width, int pieces, void (*run)(void*, int), void* context,
                bool wakes) {
  Loop loop(pieces, run, context);
  int wanted = std::min({width - 1, pieces - 1, kMostHelpers});
  if (wanted > 0) shared_at_.store(now_ns(), std::memory_order_relaxed);
  Helper* offered[kMostHelpers];
  int n = 0;
  const auto offer = [&](Helper& helper) {
    if (helper.offer(loop, wakes)) offered[n++] = &helper;
  };
  for (int i = 0; i < kMostWaiting && n < wanted; ++i) offer(waiting_[i]);
  wanted -= n;
  if (wanted > 0 && openmp_team_spins()) {
    run_in_openmp_team(
        wanted + 1, [](void* loop) { static_cast<Loop*>(loop)->work(); },
        &loop);
  } else {
    const int there = started_.load(std::memory_order_relaxed);
    if (wanted > there) [[unlikely]]
      wanted = wakes ? start(wanted) : there;
    for (int i = 0; i < wanted; ++i) offer(helpers_[i]);
    loop.work();
  }
  for (int i = 0; i < n; ++i) offered[i]->take_back();
  if (loop.error) std::rethrow_exception(loop.error);
}

WaitingHelper::WaitingHelper() : place_(nullptr) {
  for (int i = 0; i < kMostWaiting && !place_; ++i)
    if (waiting_[i].come()) place_ = &waiting_[i];
}

WaitingHelper::~WaitingHelper() {
  if (place_) place_->go();
}

bool WaitingHelper::help() { return place_ && place_->help(); }

bool helpers_are_wanted(uint64_t now) {
  return now - shared_at_.load(std::memory_order_relaxed) <
         tuning::kCrowdStaysNs;
}

}  // namespace npu
