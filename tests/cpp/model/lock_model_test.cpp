// The locks under every schedule within the bounds: one holder at a time, who
// sees what the one before wrote, and no waiter sleeps for ever.
#include <memory>

#include "csrc/taskqueue/sleep_lock.h"
#include "csrc/taskqueue/sole_lock.h"
#include "tests/cpp/check.h"
#include "tests/cpp/model/expect.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

template <typename Lock, int kThreads, int kEach>
class Counting : public Program {
 public:
  int threads() const override { return kThreads; }
  void thread(int) override {
    for (int i = 0; i < kEach; ++i) {
      lock_.lock();
      count_.set(count_.get() + 1);
      lock_.unlock();
    }
  }
  void finish() override {
    model::require(count_.get() == kThreads * kEach, "a count is lost");
  }

 private:
  Lock lock_;  // its atomics are the program's first
  Plain<int> count_;
};

template <typename Lock, int kThreads, int kEach>
Outcome explore(const Limits& limits, const Mutant& mutant = {}) {
  return model::explore(limits, mutant, Fences::kAsymmetric, [] {
    return std::make_unique<Counting<Lock, kThreads, kEach>>();
  });
}

using Sleep = BasicSleepLock<model::System, 0>;
using Sole = BasicSoleLock<model::System, 0>;

TEST(SleepLockModel, HoldsForTwoThreads) {
  expect_correct("sleep lock", explore<Sleep, 2, 2>({3, 2}));
}
TEST(SleepLockModel, HoldsForThreeThreads) {
  expect_correct("sleep lock", explore<Sleep, 3, 1>({3, 2}));
}
TEST(SoleLockModel, HoldsForTwoThreads) {
  expect_correct("sole lock", explore<Sole, 2, 2>({3, 1}));
}
TEST(SoleLockModel, HoldsForThreeThreads) {
  expect_correct("sole lock", explore<Sole, 3, 1>({2, 1}));
}

constexpr int kState = model::made_as(0);

TEST(SleepLockModel, FindsALockThatIsNotTaken) {
  expect_found("not taken", explore<Sleep, 2, 2>(
                                {3, 2}, {kState, Operation::kReadModifyWrite,
                                         Effect::kSkip}));
}
TEST(SleepLockModel, FindsOrderThatIsNotKept) {
  expect_found("relaxed", explore<Sleep, 2, 2>(
                              {3, 2}, {kState, Operation::kReadModifyWrite,
                                       Effect::kRelax}));
}
TEST(SleepLockModel, FindsAWakeUpThatIsNotSent) {
  expect_found(
      "no wake-up",
      explore<Sleep, 2, 2>({3, 2}, {kState, Operation::kWake, Effect::kSkip}));
}

}  // namespace
}  // namespace npu::model
