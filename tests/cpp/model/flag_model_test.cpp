// Runs the flags' own code under every schedule within the bounds: one taker
// for each time that a flag is set, and no wake-up is lost, though the sleep
// here has no limit.
#include "csrc/interop/flag.h"

#include "csrc/taskqueue/task_wait.h"
#include "tests/cpp/model/expect.h"

namespace npu::model {
namespace {

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
class TakeProgram : public Program {
 public:
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

 private:
  ModelFlag flag_;  // the program's first atomic
  Plain<int> data_[2];
  int taken_ = 0;
};

// One thread sets the flag to the numbers in turn, each of two others waits for
// one of them.
template <Sleeper kSleeper>
class ReachProgram : public Program {
 public:
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

 private:
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
