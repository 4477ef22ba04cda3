#include "csrc/placement/shared_loop.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "csrc/base/blocked_signals.h"
#include "csrc/base/clock.h"
#include "csrc/placement/helper.h"
#include "csrc/placement/openmp_crowd.h"
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
  pthread_setname_np(pthread_self(), "npu-helper");
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
  const BlockedSignals blocked;
  helper.come();
  pthread_t thread;
  if (pthread_create(&thread, nullptr, &help, &helper) != 0) return false;
  pthread_detach(thread);
  return true;
}

// Returns how many helpers there are of `wanted`.
int start(int wanted) {
  for (int n; (n = started_.load(std::memory_order_relaxed)) < wanted;)
    if (started_.compare_exchange_strong(n, n + 1, std::memory_order_relaxed) &&
        !start(helpers_[n]))
      return n;
  return wanted;
}

// The crew that this thread is a member of, if any.
constinit thread_local Helper* crews_places_ = nullptr;

// A loop, and who has been offered it.
class Offered {
 public:
  Offered(Loop& loop, bool wakes) : loop_(loop), wakes_(wakes) {}

  // To `wanted` of these at most. Returns how many are left to be found.
  int to(Helper* helpers, int among, int wanted) {
    for (int i = 0; i < among && wanted > 0; ++i)
      if (helpers[i].offer(loop_, wakes_)) {
        to_[n_++] = &helpers[i];
        --wanted;
      }
    return wanted;
  }
  void to_helpers(int wanted) {
    const int there = started_.load(std::memory_order_relaxed);
    if (wanted > there) [[unlikely]]
      wanted = wakes_ ? start(wanted) : there;
    to(helpers_, wanted, wanted);
  }
  // This thread works, too, and waits for the others.
  void finish() {
    loop_.work();
    for (int i = 0; i < n_; ++i) to_[i]->take_back();
    if (loop_.error) std::rethrow_exception(loop_.error);
  }

 private:
  Loop& loop_;
  const bool wakes_;
  Helper* to_[kMostHelpers];
  int n_ = 0;
};

}  // namespace

void run_shared(int width, int pieces, void (*run)(void*, int), void* context,
                bool wakes) {
  Loop loop(pieces, run, context);
  Offered offered(loop, wakes);
  int wanted = std::min({width - 1, pieces - 1, kMostHelpers});
  if (crews_places_) {
    offered.to(crews_places_, Crew::kMost, wanted);
    return offered.finish();
  }
  if (wanted > 0) shared_at_.store(now_ns(), std::memory_order_relaxed);
  wanted = offered.to(waiting_, kMostWaiting, wanted);
  if (wanted > 0 && openmp_team_spins())
    run_in_openmp_team(
        wanted + 1, [](void* loop) { static_cast<Loop*>(loop)->work(); },
        &loop);
  else
    offered.to_helpers(wanted);
  offered.finish();
}

struct Crew::Member {
  explicit Member(Crew& crew) { crews_places_ = crew.places_.get(); }
  ~Member() { crews_places_ = nullptr; }
};

Crew::Crew() : places_(new Helper[kMost]) {}
Crew::~Crew() = default;

void Crew::run(int members, void (*work)(void*, int), void* context) {
  struct Call {
    Crew& crew;
    void (*work)(void*, int);
    void* context;
  } call{*this, work, context};
  Loop loop(
      members,
      [](void* call, int member) {
        const Call& c = *static_cast<const Call*>(call);
        const Member here(c.crew);
        c.work(c.context, member);
      },
      &call);
  Offered offered(loop, true);
  offered.to_helpers(members - 1);
  offered.finish();
}

WaitingHelper::WaitingHelper() : place_(nullptr) {
  Helper* const places = crews_places_ ? crews_places_ : waiting_;
  const int among = crews_places_ ? Crew::kMost : kMostWaiting;
  for (int i = 0; i < among && !place_; ++i)
    if (places[i].come()) place_ = &places[i];
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
