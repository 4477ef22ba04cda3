// What a launcher without work does: looks for it, leaves the queue alone for a
// moment, or sleeps; and what earlier gaps say about that. Pure: told the time,
// says what to do next.
#pragma once

#include <cstdint>

namespace npu {

// Times are ticks of any clock.
class IdlePolicy {
 public:
  enum class Do { kRest, kLook, kSleep };
  struct Step {
    Do what;
    int looks = 1;  // so often, with a pause after each
  };

  explicit IdlePolicy(uint64_t ticks_per_us);

  // A gap begins. For how long it may spin at most: about four times the usual
  // gap, or longer while that has been worth it, and the rest at the end of it.
  uint64_t begin();
  // It may for so long, from now on.
  void granted(uint64_t now, uint64_t ticks) {
    start_ = last_ = now;
    granted_ = ticks > longest_rest_ ? ticks - longest_rest_ : 0;
    stage_ = Stage::kFirst;
  }
  // `awaited`: somebody waits for the next task; `rest_ticks()`: how long to
  // leave the queue alone otherwise.
  //
  // A slot that has been looked at must be taken from this core by whoever
  // fills it, which costs a caller as much as all the rest of its launch's
  // queueing; a task that nobody waits for may as well be taken with those that
  // follow it.
  template <typename Rest>
  Step next(uint64_t now, bool awaited, Rest rest_ticks) {
    if (stage_ != Stage::kResting) {
      if (stage_ == Stage::kLooking) looked(now - last_);
      last_ = now;
      if (now - start_ >= granted_) return {Do::kSleep};
      stage_ = Stage::kResting;
      rest_until_ = now + rest_ticks();
    }
    if (!awaited && now < rest_until_) return {Do::kRest};
    stage_ = Stage::kLooking;
    return {Do::kLook, awaited ? kLooksWhileAwaited : 1};
  }
  // There is work, now; returns how long there was none.
  uint64_t found(uint64_t now);
  // After kSleep: there was work this long after the gap began.
  void slept(uint64_t gap);

  // Does as next() says. True: there is work, `gap` after the beginning. False:
  // sleep.
  //
  // World: uint64_t ticks(), void pause(), bool work(), bool awaited(),
  // uint64_t rest_ticks(), and grant(uint64_t ticks), how long of that it may
  // spin: an object with ticks() that exists while it does.
  template <typename World>
  bool look(World& world, uint64_t& gap) {
    const auto grant = world.grant(begin());
    granted(world.ticks(), grant.ticks());
    const auto rest = [&world] { return world.rest_ticks(); };
    for (;;) {
      const Step step = next(world.ticks(), world.awaited(), rest);
      if (step.what == Do::kSleep) return false;
      for (int i = 0; step.what == Do::kLook && i < step.looks; ++i) {
        if (world.work()) {
          gap = found(world.ticks());
          return true;
        }
        if (i + 1 < step.looks) world.pause();
      }
      world.pause();
    }
  }

  // Whether somebody waits for task `wanted`, or did so a few tasks ago. `next`
  // is the one that the launcher is to run.
  static bool awaited(uint64_t wanted, uint64_t next);

  // How long to leave the queue alone. A caller pays for looks, a wait for the
  // rest that it meets; their sum is least for a rest that grows as the square
  // root of the time between waits. The time since the last is what is known
  // of that, so the rest doubles for each fourfold number of tasks.
  static uint64_t rest_ns(uint64_t wanted, uint64_t next);

 private:
  enum class Stage { kFirst, kResting, kLooking };
  static constexpr int kLooksWhileAwaited = 16;

  void looked(uint64_t ticks);  // so long after the look before

  const uint64_t ticks_per_us_, longest_rest_;
  uint64_t mean_gap_;      // smoothed
  uint64_t short_spin_{};  // of this gap
  // How many gaps not to spin in after having been preempted in one.
  int skipped_ = 0;
  // Gaps that a patient spin outlasts, less those that it does not.
  int patience_ = 0;

  // Of this gap.
  Stage stage_ = Stage::kFirst;
  uint64_t start_ = 0, granted_ = 0, last_ = 0, rest_until_ = 0;
};

}  // namespace npu
