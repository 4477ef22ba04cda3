// Runs the flags' own code under every schedule within the bounds: one taker
// for each time that a flag is set, and no wake-up is lost, though the sleep
// here has no limit.
#include "csrc/interop/flag.h"

#include "csrc/taskqueue/task_wait.h"
#include "tests/cpp/check.h"
#include "tests/cpp/model/expect.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

using ModelFlag = BasicFlag<model::System>;

enum class Sleeper { kCorrect, kSleepsOnANewerValue };

// Waits as the tasks do.
template <Sleeper kSleeper, typename Came>
void wait(ModelFlag& flag, Came came) {
  uint32_t seen = 0;
  wait_in_task(
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
        while (flag_.value() != 0) model::yield();
        data.set(1);
        flag_.set(1);
      }
      return;
    }
    wait<kSleeper>(flag_, [&](uint32_t& seen) { return flag_.take(seen); });
    model::require(data_[taken_++].get() == 1, "taken before it is set");
  }
  void finish() override {
    model::require(flag_.value() == 0, "the flag is left");
  }

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
    model::require(data_[id].get() == 1, "reached before it is set");
  }

 private:
  static constexpr uint32_t kStart = ~0u - 1;  // the second number wraps

  ModelFlag flag_{kStart};
  Plain<int> data_[3];
};

template <typename P>
Outcome explore(const Mutant& mutant = {}) {
  return model::explore({3, 2}, mutant, Fences::kAsymmetric,
                        [] { return std::make_unique<P>(); });
}

using Take = TakeProgram<Sleeper::kCorrect>;
using Reach = ReachProgram<Sleeper::kCorrect>;
constexpr int kWord = made_as(0);

TEST(FlagModel, IsTakenByOneTakerEachTime) {
  expect_correct("take", explore<Take>());
}
TEST(FlagModel, IsReachedByAll) { expect_correct("reach", explore<Reach>()); }

TEST(FlagModel, FindsASetWithoutRelease) {
  const Mutant mutant{kWord, Operation::kStore, Effect::kRelax};
  expect_found("take", explore<Take>(mutant));
  expect_found("reach", explore<Reach>(mutant));
}
TEST(FlagModel, FindsASetThatDoesNotHappen) {
  const Mutant mutant{kWord, Operation::kStore, Effect::kSkip};
  expect_found("take", explore<Take>(mutant));
  expect_found("reach", explore<Reach>(mutant));
}
TEST(FlagModel, FindsAWakeUpThatIsNotSent) {
  const Mutant mutant{kWord, Operation::kWake, Effect::kSkip};
  expect_found("take", explore<Take>(mutant));
  expect_found("reach", explore<Reach>(mutant));
}
TEST(FlagModel, FindsATakeWithoutAcquire) {
  expect_found("take", explore<Take>({kWord, Operation::kReadModifyWrite,
                                      Effect::kNoAcquire}));
}
TEST(FlagModel, FindsATakeThatLeavesTheFlag) {
  expect_found("take", explore<Take>({kWord, Operation::kReadModifyWrite,
                                      Effect::kSkip}));
}
TEST(FlagModel, FindsAReachWithoutAcquire) {
  expect_found("reach",
               explore<Reach>({kWord, Operation::kLoad, Effect::kRelax}));
}
TEST(FlagModel, FindsAReachThatIsOneTooEarly) {
  expect_found("reach",
               explore<Reach>({kWord, Operation::kLoad, Effect::kLie, 1}));
}
TEST(FlagModel, FindsASleepOnAValueThatNobodyHasLookedAt) {
  constexpr auto kSleeper = Sleeper::kSleepsOnANewerValue;
  expect_found("take", explore<TakeProgram<kSleeper>>());
  expect_found("reach", explore<ReachProgram<kSleeper>>());
}

}  // namespace
}  // namespace npu::model
