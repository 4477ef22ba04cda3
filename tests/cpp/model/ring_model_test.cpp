// The ring's own code under every schedule within the bounds, alone, and with
// its launcher's sleep and end: each task is run, or dropped where the stream
// was stopped by force, and nobody sleeps for ever. Each planted bug is found.
#include "csrc/taskqueue/parking.h"
#include "csrc/taskqueue/ring.h"
#include "csrc/taskqueue/sole_lock.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

// What a ring of two slots is made of, in the order of its members.
constexpr int kTail = made_as(5), kKnown = made_as(6),
              kRingRetired = made_as(7);
constexpr int kLap = 1;
enum class Consumer { kCorrect, kLooksAhead, kRetiresBeforeItReads };

struct Slot {
  Atomic<uint32_t> lap{0};
  Plain<int> value;
};

template <int kProducers, int kEach, int kCapacity>
struct RingProgram : Program {
  explicit RingProgram(Consumer consumer) : consumer_(consumer) {
    for (auto& slot : slots_) slot.lap.label(kLap);
  }
  int threads() const override { return kProducers + 1; }

  void thread(int id) override {
    if (id < kProducers) {
      for (int i = 0; i < kEach; ++i) produce(id * kEach + i);
    } else if (consumer_ == Consumer::kLooksAhead) {
      consume_ahead();
    } else {
      consume();
    }
  }
  using Tested = Ring<Slot, System>;

  void produce(int value) {
    uint64_t p;
    while ((p = ring_.claim()) == kRingFull) yield();
    ring_.slot(p).value.set(value);
    ring_.publish(p);
  }

  void consume() {
    int next[kProducers] = {};
    for (int seen = 0; seen < kProducers * kEach;) {
      Slot* front = ring_.front();
      if (!front) {
        yield();
        continue;
      }
      if (consumer_ == Consumer::kRetiresBeforeItReads) ring_.retire();
      const int value = front->value.get();
      const int from = value / kEach;
      require(value % kEach == next[from]++, "out of order");
      if (consumer_ == Consumer::kCorrect) ring_.retire();
      ++seen;
    }
  }
  // As where the driver ends tasks later: reads two values where they lie
  // before it gives their slots back.
  void consume_ahead() {
    for (uint64_t p = 0; p < kProducers * kEach; p += 2) {
      for (uint64_t ahead = p; ahead < p + 2; ++ahead) {
        Slot* slot;
        while (!(slot = ring_.at(ahead))) yield();
        require(slot->value.get() == int(ahead), "out of order");
      }
      ring_.retire();
      ring_.retire();
    }
  }

  const Consumer consumer_;
  Slot slots_[kCapacity];
  Atomic<uint64_t> shown_;
  Tested ring_{slots_, kCapacity, shown_};
};

constexpr auto kCorrect = Consumer::kCorrect;

TEST(RingModel, KeepsTheOrderOfEachProducer) {
  expect_correct<RingProgram<1, 5, 2>>("several laps", {3, 1}, kCorrect);
  expect_correct<RingProgram<2, 2, 2>>("the smallest ring", {2, 1}, kCorrect);
  expect_correct<RingProgram<2, 2, 2>>("many stale reads", {1, 3}, kCorrect);
  expect_correct<RingProgram<2, 3, 4>>("with room", {1, 1}, kCorrect);
  expect_correct<RingProgram<3, 1, 2>>("three producers", {1, 1}, kCorrect);
  expect_correct<RingProgram<1, 4, 2>>("a consumer that looks ahead", {2, 2},
                                       Consumer::kLooksAhead);
}

TEST(RingModel, FindsPlantedBugs) {
  expect_each_found<RingProgram<2, 2, 2>>(
      {2, 1},
      {{"a publish without release", {kLap, kStore, kRelax}},
       {"a front without acquire", {kLap, kLoad, kRelax}},
       {"a known number loaded without acquire", {kKnown, kLoad, kRelax}},
       {"a known number stored without release", {kKnown, kStore, kRelax}},
       {"a retired loaded without acquire", {kRingRetired, kLoad, kRelax}},
       {"a retire without release", {kRingRetired, kStore, kRelax}},
       {"a claim that ignores a full ring", {kRingRetired, kLoad, kLie, 2}},
       {"a retire that does not happen", {kRingRetired, kStore, kSkip}},
       {"a claim that does not move the tail",
        {kTail, kReadModifyWrite, kSkip}}},
      kCorrect);
  expect_each_found<RingProgram<2, 2, 2>>(
      {2, 1}, {{"a consumer that retires before it reads", {}}},
      Consumer::kRetiresBeforeItReads);
  expect_each_found<RingProgram<1, 4, 2>>(
      {2, 2}, {{"a look ahead without acquire", {kLap, kLoad, kRelax}}},
      Consumer::kLooksAhead);
}

constexpr int kTasks = 2;

// What a planted bug leaves out.
enum class Without {
  kNothing,
  kWakeOfStop,       // stop(), force_stop(): wake_if_parked()
  kWakeOfCommit,     // commit(): rouse()
  kNewLauncher,      // rouse(): start() where the launcher has left
  kLookBeforeLeave,  // the launcher leaves without looking again
  kLookAtStop,       // park(): whether the launcher has to end
  kLookAtFailure,    // wait_for_report(): whether the stream has failed
};

// As Stream, with Launcher and LaunchAhead: the same calls of the ring and of
// the parking in the same order. Thread 0 submits, and stops the stream at the
// end, as its destructor does; thread 1 is the first launcher.
struct Stopped : Program {
  explicit Stopped(Without without) : without_(without) {
    for (auto& slot : slots_) slot.lap.label(kLap);
  }

  // As begin() and commit(). False: the stream has failed.
  bool submit(int value) {
    const uint32_t gate = gate_.load(kRelaxed);
    if (gate >= kFailed) return false;
    if (gate) start();
    const uint64_t p = ring_.claim();
    ring_.slot(p).value.set(value);
    ring_.publish(p);
    if (without_ != Without::kWakeOfCommit && parking_.needs_wake()) rouse();
    return true;
  }
  void rouse() {
    if (parking_.wake() || ring_.retired().reached(ring_.tail())) return;
    if (without_ != Without::kNewLauncher) start();
  }
  void start() {
    mutex_.lock();
    if (gate_.load(kRelaxed) % kFailed) {
      threads_.fetch_add(kSecondStarted, kRelease);
      ++launchers_;
      joinable_ = true;
      gate_.fetch_add(0u - kNotStarted, kRelaxed);
    }
    mutex_.unlock();
  }
  void stop() {
    mutex_.lock();
    const bool stops = std::exchange(joinable_, false);
    if (stops) {
      gate_.fetch_add(kNotStarted, kRelaxed);
      stopping_.store(launchers_, kRelease);
    }
    mutex_.unlock();
    if (stops && without_ != Without::kWakeOfStop) parking_.wake_if_parked();
  }
  void force_stop() {
    error_.set(1);
    gate_.fetch_add(kFailed, kRelease);
    if (without_ != Without::kWakeOfStop) parking_.wake_if_parked();
  }

  // As Stream::launch() and Launcher::run().
  template <typename RunQueued>
  void launch(uint64_t number, RunQueued run_queued) {
    parking_.enter();
    do run_queued();
    while (sleep_until_work(number));
    threads_.fetch_add(kFirstEnded, kRelease);
  }
  bool sleep_until_work(uint64_t number) {
    const auto ends = [&] { return stopping_.load(kAcquire) > number; };
    while (!ring_.front()) {
      const auto claimed = [&] {
        return without_ != Without::kLookBeforeLeave &&
               ring_.front_position() != ring_.tail();
      };
      if (ends() && !claimed() && parking_.leave(claimed)) return false;
      parking_.park([&] {
        return ring_.front() || (without_ != Without::kLookAtStop && ends());
      });
      // A producer is between claim() and publish(): the launcher looks again
      // and again.
      if (ends() && claimed() && !ring_.front()) yield();
    }
    return true;
  }
  // As Executor::run_queued().
  void run_queued() {
    while (Slot* const task = ring_.front()) {
      count(*task, fails() ? dropped_ : ran_);
      ring_.retire();
    }
  }
  // As LaunchAhead::run_queued(), on a device that does not answer.
  void run_ahead() {
    for (;;) {
      const bool alone = launched_ == ring_.front_position();
      if (fails() && !alone) {
        give_up_flights();
      } else if (Slot* const task = ring_.at(launched_)) {
        ++launched_;
        if (fails()) give_up_flights();
      } else if (alone) {
        return;
      } else {
        parking_.park([&] {
          return ring_.at(launched_) ||
                 (without_ != Without::kLookAtFailure && fails());
        });
      }
    }
  }
  void give_up_flights() {
    while (ring_.front_position() != launched_) {
      count(*ring_.front(), dropped_);
      ring_.retire();
    }
  }
  bool fails() const { return gate_.load(kRelaxed) >= kFailed; }

  void count(Slot& task, Plain<int>& outcome) {
    require(task.value.get() == ran_.get() + dropped_.get() + 1,
            "a task is not what was submitted");
    outcome.set(outcome.get() + 1);
  }

  static constexpr uint32_t kNotStarted = 1, kFailed = 2;
  static constexpr int kFirstEnded = 1, kSecondStarted = 2, kNoSecond = 4;

  const Without without_;
  Slot slots_[2];  // its atomics are the program's first
  Atomic<uint64_t> shown_;
  Ring<Slot, System> ring_{slots_, 2, shown_};
  BasicParking<System> parking_;
  Atomic<uint64_t> stopping_;
  Atomic<uint32_t> gate_;
  BasicSleepLock<System, 0> mutex_;  // guards the next two
  uint64_t launchers_ = 1;
  bool joinable_ = true;
  // Stands for the beginning and the join of threads, and for Stream::ended_.
  Atomic<int> threads_;
  Plain<int> error_;
  uint64_t launched_ = 0;
  Plain<int> ran_, dropped_;
};

// A thread stops the launcher while another submits: what it submits behind
// that is run by the next launcher.
struct Stops : Stopped {
  explicit Stops(Without without) : Stopped(without) {}
  int threads() const override { return 4; }
  void thread(int id) override {
    if (id == 0) {
      for (int i = 1; i <= kTasks; ++i) submit(i);
      if (launchers_ == 1) threads_.fetch_add(kNoSecond, kRelease);
      stop();
    } else if (id == 1) {
      launch(0, [this] { run_queued(); });
    } else if (id == 2) {
      stop();
    } else {
      int now;
      while ((now = threads_.load(kAcquire)) < kFirstEnded + kSecondStarted)
        yield();
      if (now < kNoSecond) launch(1, [this] { run_queued(); });
    }
  }
  void finish() override {
    require(ran_.get() == kTasks, "a task is left, and nobody knows");
  }
};

// The stream is stopped by force.
template <bool kAnswers>
struct StopsByForce : Stopped {
  explicit StopsByForce(Without without) : Stopped(without) {}
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id == 0) {
      for (int i = 1; i <= kTasks; ++i)
        if (submit(i)) ++submitted_;
      if (gate_.load(kAcquire) >= kFailed)
        require(error_.get() == 1, "the error is not there");
      stop();
    } else if (id == 1) {
      launch(0, [this] { kAnswers ? run_queued() : run_ahead(); });
    } else {
      force_stop();
    }
  }
  void finish() override {
    require(ran_.get() + dropped_.get() == submitted_,
            "a task is left, and nobody knows");
  }
  int submitted_ = 0;
};

constexpr auto kNothing = Without::kNothing;
constexpr Limits kStopLimits{2, 1};

TEST(StoppingModel, EndsEachTask) {
  expect_correct<Stops>("stop", {2, 0}, kNothing);
  expect_correct<Stops>("stop, stale reads", {1, 1}, kNothing);
  expect_correct<Stops>("stop, two fences", {1, 1}, Fences::kSymmetric,
                        kNothing);
  expect_correct<StopsByForce<true>>("force stop", kStopLimits, kNothing);
  expect_correct<StopsByForce<false>>("a device that does not answer",
                                      kStopLimits, kNothing);
}

// The order of the atomics of the slots, the ring, the parking and the stream.
constexpr int kParked = made_as(11), kStopping = made_as(12),
              kGate = made_as(13);

TEST(StoppingModel, FindsPlantedBugs) {
  const std::pair<const char*, Without> left_out[] = {
      {"a stop that wakes nobody", Without::kWakeOfStop},
      {"a commit that wakes nobody", Without::kWakeOfCommit},
      {"a launcher that nobody replaces", Without::kNewLauncher},
      {"a launcher that leaves without a look", Without::kLookBeforeLeave},
      {"a launcher that sleeps through its stop", Without::kLookAtStop}};
  for (const auto& [name, without] : left_out)
    expect_each_found<Stops>(kStopLimits, {{name, {}}}, without);
  expect_each_found<StopsByForce<false>>(
      kStopLimits, {{"a force stop that wakes nobody", {}}},
      Without::kWakeOfStop);
  expect_each_found<StopsByForce<false>>(
      kStopLimits, {{"a launcher that sleeps through a force stop", {}}},
      Without::kLookAtFailure);
  expect_each_found<StopsByForce<true>>(
      kStopLimits,
      {{"a failure without release", {kGate, kReadModifyWrite, kRelax}}},
      kNothing);
  expect_each_found<Stops>(
      kStopLimits,
      {{"a missing fence", kNoFence},
       {"a publish without release", {kLap, kStore, kRelax}},
       {"a front without acquire", {kLap, kLoad, kRelax}},
       {"a launcher that leaves without a sign", {kParked, kStore, kSkip}},
       {"a wake-up that is not sent", {kParked, kWake, kSkip}},
       {"a stop that is not seen", {kStopping, kStore, kSkip}}},
      kNothing);
}

}  // namespace
}  // namespace npu::model
