// How a launcher without work looks for it before it goes to sleep: how long,
// how often, and what earlier gaps say about that. No clock of its own.
#pragma once

#include <cstdint>

namespace npu {

// Times are ticks of the clock that the world below tells.
class IdleSpin {
 public:
  explicit IdleSpin(uint64_t ticks_per_us);

  // Looks for about four times the usual gap, or longer while that has been
  // worth it. True: there is work, `gap` after the beginning. False: sleep.
  //
  // World: uint64_t ticks(), void pause(), bool work(), bool awaited(),
  // uint64_t rest_ticks(), how long to leave the queue alone unless somebody
  // waits, and grant(uint64_t ticks), how long of that it may spin: an object
  // with ticks() that exists while it does.
  template <typename World>
  bool look(World& world, uint64_t& gap) {
    const auto grant = world.grant(begin());
    const uint64_t start = world.ticks();
    for (uint64_t last = start; last - start < grant.ticks();) {
      rest(world);
      for (int i = 0; i < (world.awaited() ? kLooksWhileAwaited : 1); ++i) {
        if (world.work()) {
          gap = world.ticks() - start;
          found(gap);
          return true;
        }
        world.pause();
      }
      const uint64_t now = world.ticks();
      looked(now - last);
      last = now;
    }
    return false;
  }

  // After look() has found nothing: there was work this long after it began.
  void slept(uint64_t gap);

  // Whether somebody waits for task `wanted`, or did so a few tasks ago. `next`
  // is the one that the launcher is to run.
  static bool awaited(uint64_t wanted, uint64_t next);

  // How long to leave the queue alone. A caller pays for looks, a wait for the
  // rest that it meets; their sum is least for a rest that grows as the square
  // root of the time between waits. The time since the last is what is known
  // of that, so the rest doubles for each fourfold number of tasks.
  static uint64_t rest_ns(uint64_t wanted, uint64_t next);

 private:
  static constexpr int kLooksWhileAwaited = 16;

  // A slot that has been looked at must be taken from this core by whoever
  // fills it, which costs a caller as much as all the rest of its launch's
  // queueing; a task that nobody waits for may as well be taken with those that
  // follow it.
  template <typename World>
  static void rest(World& world) {
    const uint64_t until = world.ticks() + world.rest_ticks();
    while (!world.awaited() && world.ticks() < until) world.pause();
  }

  uint64_t begin();             // returns how long to look
  void looked(uint64_t ticks);  // after the look before
  void found(uint64_t gap);

  const uint64_t ticks_per_us_;
  uint64_t mean_gap_;      // smoothed
  uint64_t short_spin_{};  // of this gap
  // How many gaps not to spin in after having been preempted in one.
  int skipped_ = 0;
  // Gaps that a patient spin outlasts, less those that it does not.
  int patience_ = 0;
};

}  // namespace npu
