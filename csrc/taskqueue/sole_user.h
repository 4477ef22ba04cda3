// Lets the one thread that uses a thing do so without locked instructions,
// until a second thread uses it.
//
// The first thread that enters has it alone: it enters and leaves by plain
// stores. The first enter() of any other thread ends that, once and for all,
// and costs an inter-processor interrupt; from then on every thread is told to
// share. (An x86 locked instruction waits until all earlier stores have their
// cache lines, some of which another core holds. That takes far longer than
// copying a task: stream_submit_chased of bench/cpp.)
#pragma once

#include <atomic>
#include <cstdint>

namespace npu {

template <typename System>
class SoleUser {
 public:
  // True: no other thread is inside before leave(), and what earlier sole users
  // did is visible. False: the caller has to share, by atomic operations, and
  // does not call leave(). Any thread that is not already inside.
  bool enter() {
    const uint64_t me = System::this_thread();
    for (;;) {
      // Acquire: a thread that shares sees what the sole user did (release of
      // kShared in end()).
      const uint64_t owner = owner_.load(std::memory_order_acquire);
      if (owner == me) [[likely]] {
        // Relaxed: the fences order this store before the second load of
        // owner_.
        inside_.store(1, std::memory_order_relaxed);
        System::light_fence();  // pairs with heavy_fence() in end()
        if (owner_.load(std::memory_order_relaxed) == me) [[likely]]
          return true;
        leave();
        continue;
      }
      if (owner == kShared) return false;
      change_owner(owner, me);
    }
  }

  void leave() {
    // Release: pairs with the acquire in end().
    inside_.store(0, std::memory_order_release);
  }

  // Ends sole use in a forked child whose only thread is inside: a thread of
  // the parent that was ending it does not exist in the child. Relaxed: the
  // child has no other thread.
  void end_in_child() {
    inside_.store(0, std::memory_order_relaxed);
    owner_.store(kShared, std::memory_order_relaxed);
  }

 private:
  // No thread has one of these numbers.
  static constexpr uint64_t kNobody = 0, kEnding = 1, kShared = 2;

  [[gnu::noinline]] void change_owner(uint64_t owner, uint64_t me) {
    // Relaxed, both exchanges: they only decide which thread comes first; the
    // fences, and kShared, order the data.
    if (owner == kNobody) {
      owner_.compare_exchange_strong(owner, me, std::memory_order_relaxed);
    } else if (owner != kEnding &&
               owner_.compare_exchange_strong(owner, kEnding,
                                              std::memory_order_relaxed)) {
      end();
    } else {
      System::let_others_run();  // another thread is ending the sole use
    }
  }

  void end() {
    System::heavy_fence();  // pairs with light_fence() in enter()
    // Either the sole user's second look finds kEnding, or we see it inside;
    // it leaves within a few instructions, unless it was preempted there.
    while (inside_.load(std::memory_order_acquire)) System::let_others_run();
    owner_.store(kShared, std::memory_order_release);
  }

  template <typename T>
  using Atomic = typename System::template Atomic<T>;

  // A thread's System::this_thread(). A thread that has the number of one that
  // has ended was started after that one ended, so it comes after all that the
  // other did.
  Atomic<uint64_t> owner_{kNobody};
  Atomic<uint32_t> inside_{0};
};

}  // namespace npu
