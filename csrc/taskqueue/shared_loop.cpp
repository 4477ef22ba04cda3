#include "csrc/taskqueue/shared_loop.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <exception>
#include <mutex>

#include "csrc/base/align.h"
#include "csrc/base/blocked_signals.h"
#include "csrc/base/clock.h"
#include "csrc/base/futex.h"
#include "csrc/placement/openmp_crowd.h"
#include "csrc/placement/tuning.h"
#include "csrc/placement/wake_placement.h"

namespace npu {
namespace {

// On the launcher's stack, until no helper uses it.
struct Loop {
  Loop(int pieces, void (*run)(void*, int), void* context)
      : pieces(pieces), run(run), context(context) {}

  void work() {
    // Relaxed: a number that nobody else gets. What a piece writes is ordered
    // by the helper's word.
    for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces;)
      try {
        run(context, i);
      } catch (...) {
        std::lock_guard lock(failed);
        error = std::current_exception();
      }
  }

  const int pieces;
  void (*const run)(void*, int);
  void* const context;
  std::atomic<int> next{0};
  std::mutex failed;  // guards error
  std::exception_ptr error;
};

enum State : uint32_t {
  kReady,    // the helper spins
  kAsleep,   // the helper sleeps until the word changes
  kClaimed,  // a launcher writes `loop_`
  kOffered,  // the helper may take the loop, and the launcher may take it back
  kTaken,    // the helper uses the loop
  kAwaited,  // it does, and the launcher sleeps until the word changes
  kLeft,     // it does not any more
};

void (*on_start_)() = nullptr;

// On cache lines of its own: helpers do not slow down each other.
class alignas(kCacheLine) Helper {
 public:
  // Any launcher. False: the helper has something else to do.
  bool offer(Loop& loop) {
    uint32_t was = word_.load(std::memory_order_relaxed);
    // Acquire: the launcher that had the helper before has written loop_.
    if ((was != kReady && was != kAsleep) ||
        !word_.compare_exchange_strong(was, kClaimed, std::memory_order_acquire,
                                       std::memory_order_relaxed))
      return false;
    loop_ = &loop;
    if (was == kAsleep) placement_.before_wake();
    // Release: the helper reads loop_, the loop and its placement.
    word_.store(kOffered, std::memory_order_release);
    if (was == kAsleep) futex_wake_all(&word_);
    return true;
  }

  // The launcher whose offer was accepted. Afterwards the helper does not use
  // the loop. A helper that was woken for nothing counts as ready: it is on its
  // way, and need not be woken again.
  void take_back() {
    uint32_t was = kOffered;
    // Release: the next launcher writes loop_.
    if (word_.compare_exchange_strong(was, kReady, std::memory_order_release,
                                      std::memory_order_relaxed))
      return;
    const uint64_t patient_until = now_ns() + tuning::kHelperWaitSpinNs;
    // Acquire: what the helper's pieces wrote.
    while (word_.load(std::memory_order_acquire) != kLeft) {
      if (now_ns() < patient_until)
        pause();
      else
        sleep_until_left();
    }
    word_.store(kReady, std::memory_order_release);
  }

  // False: the system gives no thread. The helper then takes no loop.
  bool start() {
    const BlockedSignals blocked;
    pthread_t thread;
    if (pthread_create(&thread, nullptr, &Helper::main, this) != 0)
      return false;
    pthread_detach(thread);
    return true;
  }

 private:
  static void* main(void* self) {
    pthread_setname_np(pthread_self(), "npu-helper");
    if (on_start_) on_start_();
    static_cast<Helper*>(self)->help();
  }

  [[noreturn]] void help() {
    uint64_t spins_until = 0;
    for (;;) {
      uint32_t was = word_.load(std::memory_order_relaxed);
      // Acquire: loop_, and what the launcher wrote before its offer.
      if (was == kOffered &&
          word_.compare_exchange_strong(was, kTaken, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
        loop_->work();
        leave();
        spins_until = now_ns() + tuning::kHelperSpinNs;
      } else if (now_ns() < spins_until) {
        pause();
      } else if (was == kReady) {
        sleep();
      }
    }
  }

  // The launcher whose loop the helper uses. The helper may have lost its core:
  // Linux gives it the one that is left by sleeping here. Woken on the helper's
  // core, the launcher would share it from then on.
  void sleep_until_left() {
    WakePlacement placement;
    placement.before_sleep();
    waiter_ = &placement;
    uint32_t was = kTaken;
    // Release: the helper that sees kAwaited uses the placement.
    if (word_.compare_exchange_strong(was, kAwaited, std::memory_order_release,
                                      std::memory_order_relaxed))
      // Acquire: the helper is done with it.
      while (word_.load(std::memory_order_acquire) == kAwaited)
        futex_wait(&word_, kAwaited, 0);
    placement.after_sleep();
  }

  void leave() {
    uint32_t was = kTaken;
    // Release: what the pieces wrote. Behind it the loop may be gone.
    // Acquire, where the launcher sleeps: its placement.
    if (word_.compare_exchange_strong(was, kLeft, std::memory_order_release,
                                      std::memory_order_acquire))
      return;
    waiter_->before_wake();
    word_.store(kLeft, std::memory_order_release);  // as above
    futex_wake_all(&word_);
  }

  void sleep() {
    placement_.before_sleep();
    uint32_t was = kReady;
    // Release: the launcher that sees kAsleep uses the placement.
    if (word_.compare_exchange_strong(was, kAsleep, std::memory_order_release,
                                      std::memory_order_relaxed))
      do futex_wait(&word_, kAsleep, 0);
      // Acquire: that launcher is done with it.
      while ((was = word_.load(std::memory_order_acquire)) == kAsleep ||
             was == kClaimed);
    placement_.after_sleep();
  }

  std::atomic<uint32_t> word_{kReady};
  // Whose these are, the word says.
  Loop* loop_ = nullptr;
  WakePlacement* waiter_ = nullptr;  // the launcher's, while it sleeps
  WakePlacement placement_;
};

constexpr int kMostHelpers = 63;
Helper helpers_[kMostHelpers];
// How many have been started. Relaxed: a helper's word orders its use.
std::atomic<int> started_{0};

// Returns how many helpers there are of `wanted`.
int start(int wanted) {
  for (int n; (n = started_.load(std::memory_order_relaxed)) < wanted;)
    if (started_.compare_exchange_strong(n, n + 1, std::memory_order_relaxed) &&
        !helpers_[n].start())
      return n;
  return wanted;
}

}  // namespace

void run_shared(int width, int pieces, void (*run)(void*, int), void* context) {
  Loop loop(pieces, run, context);
  int n = std::min({width - 1, pieces - 1, kMostHelpers});
  if (n > 0 && openmp_team_spins()) {
    run_in_openmp_team(
        n + 1, [](void* loop) { static_cast<Loop*>(loop)->work(); }, &loop);
    n = 0;
  }
  if (n > started_.load(std::memory_order_relaxed)) [[unlikely]]
    n = start(n);
  std::bitset<kMostHelpers> offered;
  for (int i = 0; i < n; ++i) offered[size_t(i)] = helpers_[i].offer(loop);
  loop.work();
  for (int i = 0; i < n; ++i)
    if (offered[size_t(i)]) helpers_[i].take_back();
  if (loop.error) std::rethrow_exception(loop.error);
}

void set_helper_start_hook(void (*hook)()) { on_start_ = hook; }

}  // namespace npu
