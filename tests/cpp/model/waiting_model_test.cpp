// Sleeping and waking, and the flags that tasks set and wait for, under every
// schedule within the bounds: no wake-up is lost, though no sleep has a limit,
// and with a planted bug one is.
#include "csrc/interop/flag.h"
#include "csrc/taskqueue/parking.h"
#include "csrc/taskqueue/sequence.h"
#include "csrc/taskqueue/task_wait.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

// A producer and a driver that reports publish; the consumer parks whenever it
// finds nothing new.
struct ParkingProgram : Program {
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id < 2) {
      work_[id].store(1, kRelaxed);
      if (id == 1) return parking_.wake_if_parked();
      if (parking_.needs_wake()) parking_.wake();
      return;
    }
    for (;;) {
      const int seen = work();
      if (seen == 2) return;
      parking_.park([&] { return work() > seen; });
    }
  }
  int work() const { return work_[0].load(kRelaxed) + work_[1].load(kRelaxed); }

  Atomic<int> work_[2];
  BasicParking<System> parking_;
};

// One thread advances to 1 and 2; two others sleep for one number each, and
// then read what was written before it.
struct SequenceProgram : Program {
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id == 0) {
      for (int n = 1; n <= 2; ++n) {
        data_[n].set(n);
        sequence_.advance_to(uint64_t(n));
      }
      return;
    }
    while (!sequence_.sleep(uint64_t(id), 0)) {
    }
    require(data_[id].get() == id, "wrong data");
  }
  Plain<int> data_[3];
  BasicSequence<System> sequence_;
};

TEST(WaitingModel, LosesNoWakeUpWhateverTheFences) {
  for (const Fences fences :
       {Fences::kAsymmetric, Fences::kSymmetric, Fences::kNone}) {
    expect_correct<ParkingProgram>("parking", {3, 2}, fences);
    expect_correct<SequenceProgram>("sequence", {3, 1}, fences);
  }
}

TEST(WaitingModel, FindsPlantedBugs) {
  constexpr int kParked = made_as(2);
  expect_each_found<ParkingProgram>(
      {3, 2}, {{"a missing fence", kNoFence},
               {"a wake-up that is not sent", {kParked, kWake, kSkip}},
               {"a flag that is not raised", {kParked, kStore, kSkip}},
               {"a placement that two use", {kParked, kStore, kRelax}}});
  // The order of the members of Sequence.
  constexpr int kValue = made_as(0), kWakeAt = made_as(1), kWakes = made_as(2);
  expect_each_found<SequenceProgram>(
      {3, 1},
      {{"a missing fence", kNoFence},
       {"an advance without release", {kValue, kStore, kRelax}},
       {"a read without acquire", {kValue, kLoad, kRelax}},
       {"a target that is not noted", {kWakeAt, kReadModifyWrite, kSkip}},
       {"a wake-up that is not counted", {kWakes, kReadModifyWrite, kSkip}},
       {"a wake-up that is not sent", {kWakes, kWake, kSkip}}});
}

using ModelFlag = BasicFlag<System>;

enum class Sleeper { kCorrect, kSleepsOnANewerValue };

// Waits as the tasks do.
template <Sleeper kSleeper, typename Came>
void wait(ModelFlag& flag, Came came) {
  uint32_t seen = 0;
  spin_then_sleep(
      0, [&] { return came(seen); }, [] { return false; },
      [&] {
        flag.sleep_while(kSleeper == Sleeper::kCorrect ? seen : flag.value());
      });
}

// One thread sets the flag for each of the two that take it, the second time
// once it has been taken.
template <Sleeper kSleeper>
struct TakeProgram : Program {
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id == 0) {
      for (auto& data : data_) {
        while (flag_.value() != 0) yield();
        data.set(1);
        flag_.set(1);
      }
      return;
    }
    wait<kSleeper>(flag_, [&](uint32_t& seen) { return flag_.take(seen); });
    require(data_[taken_++].get() == 1, "taken before it is set");
  }
  void finish() override { require(flag_.value() == 0, "the flag is left"); }
  ModelFlag flag_;  // the program's first atomic
  Plain<int> data_[2];
  int taken_ = 0;
};

// One thread sets the flag to the numbers in turn, each of two others waits for
// one of them.
template <Sleeper kSleeper>
struct ReachProgram : Program {
  int threads() const override { return 3; }
  void thread(int id) override {
    if (id == 0) {
      for (uint32_t i = 1; i <= 2; ++i) {
        data_[i].set(1);
        flag_.set(kStart + i);
      }
      return;
    }
    wait<kSleeper>(flag_, [&](uint32_t& seen) {
      return flag_.reached(kStart + uint32_t(id), seen);
    });
    require(data_[id].get() == 1, "reached before it is set");
  }
  static constexpr uint32_t kStart = ~0u - 1;  // the second number wraps

  ModelFlag flag_{kStart};
  Plain<int> data_[3];
};

using Take = TakeProgram<Sleeper::kCorrect>;
using Reach = ReachProgram<Sleeper::kCorrect>;
constexpr Limits kLimits{3, 2};
constexpr int kWord = made_as(0);

TEST(FlagModel, IsTakenByOneEachTimeAndReachedByAll) {
  expect_correct<Take>("take", kLimits);
  expect_correct<Reach>("reach", kLimits);
}

TEST(FlagModel, FindsPlantedBugs) {
  const Planted of_both[] = {
      {"a set without release", {kWord, kStore, kRelax}},
      {"a set that does not happen", {kWord, kStore, kSkip}},
      {"a wake-up that is not sent", {kWord, kWake, kSkip}}};
  for (const Planted& bug : of_both) {
    expect_each_found<Take>(kLimits, {bug});
    expect_each_found<Reach>(kLimits, {bug});
  }
  expect_each_found<Take>(
      kLimits,
      {{"a take without acquire", {kWord, kReadModifyWrite, kNoAcquire}},
       {"a take that leaves the flag", {kWord, kReadModifyWrite, kSkip}}});
  expect_each_found<Reach>(
      kLimits, {{"a reach without acquire", {kWord, kLoad, kRelax}},
                {"a reach that is one too early", {kWord, kLoad, kLie, 1}}});
  const Planted newer{"a sleep on a value that nobody has looked at", {}};
  constexpr auto kNewer = Sleeper::kSleepsOnANewerValue;
  expect_each_found<TakeProgram<kNewer>>(kLimits, {newer});
  expect_each_found<ReachProgram<kNewer>>(kLimits, {newer});
}

}  // namespace
}  // namespace npu::model
