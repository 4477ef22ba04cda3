// Lets the one thread that uses something do so without locked instructions,
// until a second thread comes.
//
// The first thread that enters has it alone: it enters and leaves by plain
// stores. The first enter() of any other thread ends that, once and for all,
// and costs an inter-processor interrupt; from then on everybody is told to
// share. (An x86 locked instruction waits until all earlier stores have their
// cache lines, some of which another core holds: far more than the copy of a
// task takes.)
#pragma once

#include <atomic>
#include <cstdint>

namespace npu {

template <typename System>
class SoleUser {
 public:
  // True: no other thread is inside before leave(), and what earlier sole
  // users did is visible. False: share, by atomic operations; leave() is not
  // to be called. Any thread; not when it is already inside.
  bool enter() {
    const uint64_t me = System::this_thread();
    for (;;) {
      // Acquire: whoever shares sees what the sole user did (release of
      // kShared in end()).
      const uint64_t owner = owner_.load(std::memory_order_acquire);
      if (owner == me) [[likely]] {
        // Relaxed: the fences order it before the second look.
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

  // In a forked child, whose only thread is inside: a thread that was about to
  // end it is not there to do so. Relaxed: nobody else is there to see it.
  void end_in_child() {
    inside_.store(0, std::memory_order_relaxed);
    owner_.store(kShared, std::memory_order_relaxed);
  }

 private:
  // No thread is told by these.
  static constexpr uint64_t kNobody = 0, kEnding = 1, kShared = 2;

  [[gnu::noinline]] void change_owner(uint64_t owner, uint64_t me) {
    // Relaxed, both: who comes first decides; the data follows by the fences.
    if (owner == kNobody) {
      owner_.compare_exchange_strong(owner, me, std::memory_order_relaxed);
    } else if (owner != kEnding &&
               owner_.compare_exchange_strong(owner, kEnding,
                                              std::memory_order_relaxed)) {
      end();
    } else {
      System::let_others_run();  // another thread ends it
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

  // A thread, by System::this_thread(). A thread that got the number of one
  // that has ended was made after that, so it comes after all it did.
  Atomic<uint64_t> owner_{kNobody};
  Atomic<uint32_t> inside_{0};
};

}  // namespace npu
