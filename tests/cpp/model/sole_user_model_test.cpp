// Runs SoleUser's own code under every schedule within the bounds: no two
// threads are inside at once, and planted bugs are found.
#include "csrc/taskqueue/sole_user.h"
#include "tests/cpp/check.h"
#include "tests/cpp/model/expect.h"
#include "tests/cpp/model/model.h"

namespace npu::model {
namespace {

enum Location { kOwner = 0, kInside = 1 };

// All threads count: the sole one by plain stores, else by atomic additions.
template <int kThreads, int kEach>
class Counting : public Program {
 public:
  int threads() const override { return kThreads; }

  void thread(int) override {
    for (int i = 0; i < kEach; ++i) {
      if (user_.enter()) {
        const uint64_t count = count_.load(std::memory_order_relaxed);
        last_.set(count);
        count_.store(count + 1, std::memory_order_relaxed);
        user_.leave();
      } else {
        model::require(
            last_.get() <= count_.fetch_add(1, std::memory_order_relaxed),
            "what the sole user wrote is not seen");
      }
    }
  }
  void finish() override {
    model::require(
        count_.load(std::memory_order_relaxed) == uint64_t(kThreads) * kEach,
        "a count is lost");
  }

 private:
  SoleUser<model::System> user_;  // its atomics are the program's first two
  model::Atomic<uint64_t> count_{0};
  Plain<uint64_t> last_;
};

template <int kThreads, int kEach>
Outcome explore(const Limits& limits, Fences fences = Fences::kAsymmetric,
                const Mutant& mutant = {}) {
  return model::explore(limits, mutant, fences, [] {
    return std::make_unique<Counting<kThreads, kEach>>();
  });
}

void expect_bug_found(const char* name, const Mutant& mutant) {
  expect_found(name, explore<3, 1>({2, 1}, Fences::kAsymmetric, mutant));
}

constexpr int label(Location location) { return model::made_as(location); }

TEST(SoleUserModel, HoldsForTwoThreads) {
  expect_correct("sole user", explore<2, 2>({3, 2}));
}
TEST(SoleUserModel, HoldsForTwoThreadsWithTwoFences) {
  expect_correct("sole user", explore<2, 2>({3, 2}, Fences::kSymmetric));
}
TEST(SoleUserModel, HoldsForThreeThreads) {
  expect_correct("sole user", explore<3, 1>({2, 1}));
}
TEST(SoleUserModel, FindsAMissingFence) {
  expect_bug_found("no fence",
                   {model::kFenceLabel, Operation::kFence, Effect::kSkip});
}
TEST(SoleUserModel, FindsASoleUserThatDoesNotSayItIsInside) {
  expect_bug_found("not inside",
                   {label(kInside), Operation::kStore, Effect::kSkip});
}
TEST(SoleUserModel, FindsALeaveWithoutRelease) {
  expect_bug_found("leave",
                   {label(kInside), Operation::kStore, Effect::kRelax});
}
TEST(SoleUserModel, FindsAWaitWithoutAcquire) {
  expect_bug_found("wait", {label(kInside), Operation::kLoad, Effect::kRelax});
}
TEST(SoleUserModel, FindsAnOwnerThatIsNotNoted) {
  expect_bug_found("owner",
                   {label(kOwner), Operation::kReadModifyWrite, Effect::kSkip});
}
TEST(SoleUserModel, FindsAnEndWithoutRelease) {
  expect_bug_found("end", {label(kOwner), Operation::kStore, Effect::kRelax});
}
TEST(SoleUserModel, FindsAnEnterWithoutAcquire) {
  expect_bug_found("enter", {label(kOwner), Operation::kLoad, Effect::kRelax});
}

}  // namespace
}  // namespace npu::model
