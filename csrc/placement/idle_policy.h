// Decides what a launcher without work does, from the gaps it met before: look
// at the queue, leave it alone for a moment, or sleep. Pure: it is told the
// time and says what to do next.
#pragma once

#include <cstdint>

namespace npu {

// Times are ticks of any clock.
class IdlePolicy {
 public:
  enum class Do { kRest, kLook, kSleep };
  struct Step {
    Do what;
    int looks = 1;  // how often to look, with a pause after each look
  };

  explicit IdlePolicy(uint64_t ticks_per_us);

  // A gap begins. Returns for how long the launcher may spin at most: about
  // four times the usual gap, or longer while that has paid off, and a rest
  // after it.
  uint64_t begin();
  // The launcher may spin for `ticks` from now on.
  void granted(uint64_t now, uint64_t ticks) {
    start_ = last_ = now;
    granted_ = ticks > longest_rest_ ? ticks - longest_rest_ : 0;
    stage_ = Stage::kFirst;
  }
  // What to do next. `awaited`: somebody waits for the next task;
  // `rest_ticks()`: how long to leave the queue alone otherwise.
  //
  // A caller that fills a slot at which this core has looked must first fetch
  // its line from this core, which costs as much as the whole rest of queueing
  // a task. A task that nobody waits for may as well be found together with
  // those that follow it.
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
  // There is work now. Returns how long there was none.
  uint64_t found(uint64_t now);
  // After kSleep: work came `gap` after the gap began.
  void slept(uint64_t gap);

  // Does as next() says. True: there was work, `gap` after the beginning.
  // False: the launcher has to sleep.
  //
  // World has uint64_t ticks(), void pause(), bool work(), bool awaited(),
  // uint64_t rest_ticks(), and grant(uint64_t ticks): an object that exists
  // while the launcher spins, and whose ticks() says for how long of that it
  // may.
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

  // Whether somebody waits, or did so a few tasks ago. `wanted` is the largest
  // number that anybody has waited for, `next` the task that comes next.
  static bool awaited(uint64_t wanted, uint64_t next);

  // How long to leave the queue alone. Looks cost callers time, and rests cost
  // time to whoever begins to wait during one. The sum of both costs is least
  // for a rest that grows as the square root of the time between waits. Of that
  // time, only the number of tasks since the last wait is known, so the rest
  // doubles whenever that number has grown fourfold.
  static uint64_t rest_ns(uint64_t wanted, uint64_t next);

 private:
  enum class Stage { kFirst, kResting, kLooking };
  static constexpr int kLooksWhileAwaited = 16;

  void looked(uint64_t ticks);  // `ticks` after the previous look

  const uint64_t ticks_per_us_, longest_rest_;
  uint64_t mean_gap_;      // smoothed
  uint64_t short_spin_{};  // of this gap
  // How many gaps not to spin in after having been preempted in one.
  int skipped_ = 0;
  // Rises by one with each gap that only a patient spin outlasts, and falls by
  // two with each that not even that does; never below 0.
  int patience_ = 0;

  // The state of this gap.
  Stage stage_ = Stage::kFirst;
  uint64_t start_ = 0, granted_ = 0, last_ = 0, rest_until_ = 0;
};

}  // namespace npu
