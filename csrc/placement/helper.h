// One thread that takes part in other threads' loops.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "csrc/base/align.h"
#include "csrc/placement/wake_placement.h"

namespace npu {

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

// The place at which launchers find the thread. On cache lines of its own:
// helpers do not slow down each other.
class alignas(kCacheLine) Helper {
 public:
  // A launcher. False: nobody is here, or has something else to do, or sleeps
  // and is not to be woken.
  bool offer(Loop& loop, bool wakes);
  // The launcher whose offer was accepted: waits until the helper does not use
  // the loop, and does not give it to a helper that has not begun. A helper
  // that was woken and finds no loop counts as ready: it is on its way to the
  // place, and the next launcher need not wake it again.
  void take_back();

  // The calling thread becomes the helper at this place. False: another is.
  bool come();
  // The helper leaves the place, and with it the loop that it was offered and
  // has not begun: the remaining pieces are for the other threads.
  void go();
  // The helper runs pieces of the loop that it was offered. False: none was.
  bool help();
  // The helper, which was offered no loop, sleeps until it is offered one. May
  // return without.
  void sleep();

 private:
  void sleep_until_left();
  void leave();

  enum State : uint32_t {
    kNobody,   // is here
    kReady,    // the helper spins
    kAsleep,   // the helper sleeps until the word changes
    kClaimed,  // a launcher writes `loop_`
    kOffered,  // the helper may take the loop, and the launcher may take it
               // back
    kTaken,    // the helper uses the loop
    kAwaited,  // the helper uses it, and the launcher sleeps until the word
               // changes
    kLeft,     // the helper does not use the loop any more
    kGone,     // nor is it here; take_back() frees the place
  };

  std::atomic<uint32_t> word_{kNobody};
  // The word says which thread may use these.
  Loop* loop_ = nullptr;
  WakePlacement* waiter_ = nullptr;  // the launcher's, while it sleeps
  WakePlacement placement_;
};

}  // namespace npu
