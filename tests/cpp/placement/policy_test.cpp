// How many cores there are to share, and how much spinning and interrupting a
// process may do.
#include "csrc/placement/policy.h"

#include <stdlib.h>

#include "csrc/placement/spin_grant.h"
#include "csrc/placement/team_policy.h"
#include "csrc/placement/tuning.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/placement/cpus.h"

namespace npu {
namespace {

using check::cpus;
using check::in_child;

constexpr uint64_t kUs = 1000, kMs = 1'000'000;
constexpr uint64_t kNow = 77'000 * kMs;

TEST(Budget, GivesSoMuchInEachWindow) {
  Budget budget(10, 100);
  EXPECT_EQ(budget.take(1000, 4), 4);
  EXPECT_EQ(budget.take(1050, 4), 4);
  EXPECT_EQ(budget.take(1099, 4), 2);
  EXPECT_EQ(budget.take(1099, 4), 0);
  EXPECT_EQ(budget.take(1100, 11), 10);
}

TEST(Budget, TakesBackWhatWasNotUsedInItsWindowOnly) {
  Budget budget(10, 100);
  budget.take(1000, 10);
  budget.give_back(1000, 3);
  EXPECT_EQ(budget.take(1001, 9), 3);
  budget.take(1100, 10);
  budget.give_back(1000, 3);  // of the one before
  EXPECT_EQ(budget.take(1101, 9), 0);
  budget.give_back(1100, 99);
  EXPECT_EQ(budget.take(1101, 99), 10);
}

// Another thread read its clock before this window and uses the time within it.
TEST(Budget, BeginsNoWindowAgain) {
  Budget budget(10, 100);
  budget.take(1100, 10);
  EXPECT_EQ(budget.take(1099, 1), 0);
  EXPECT_EQ(budget.take(1100, 1), 0);
}

TEST(Budget, GoesOnWhereTheNumbersOfWindowsBeginAgain) {
  Budget budget(10, 1);
  const uint64_t half = uint64_t{1} << 31, last = UINT32_MAX;
  for (const uint64_t now : {half, half + 1, last})
    EXPECT_EQ(budget.take(now, 99), 10);
  EXPECT_EQ(budget.take(last + 1, 99), 10);
  EXPECT_EQ(budget.take(last, 99), 0);
  EXPECT_EQ(budget.take(last + 2, 99), 10);
}

TEST(Policy, AllSpinWhereThereAreCores) {
  Policy policy({2, {}, 1, 0}, true);
  EXPECT_TRUE(!policy.spin_is_limited());
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(policy.spin(kNow, 250 * kUs), 250 * kUs);
}

TEST(Policy, NobodySpinsOnTheOnlyCoreOrWhereItIsOff) {
  Policy alone({1, {}, 1, 0}, true), off({64, {}, 1, 0}, false);
  EXPECT_EQ(alone.spin(kNow, 250 * kUs), 0);
  EXPECT_EQ(off.spin(kNow, 250 * kUs), 0);
  alone.set_cpus(2);  // taskset
  EXPECT_EQ(alone.spin(kNow, 250 * kUs), 250 * kUs);
  alone.set_cpus(1);
  EXPECT_EQ(alone.spin(kNow, 250 * kUs), 0);
}

// Four processes share the time of 1.6 cores, an eighth of which may go to
// spinning.
TEST(Policy, SpinningIsAPartOfTheQuota) {
  Policy policy({64, {160 * kMs, 100 * kMs}, 4, 0}, true);
  uint64_t spun = 0;
  for (int i = 0; i < 1000; ++i) spun += policy.spin(kNow, 100 * kUs);
  EXPECT_EQ(spun, 5 * kMs);
  policy.unused_spin(kNow, 2 * kMs);
  EXPECT_EQ(policy.spin(kNow, 10 * kMs), 2 * kMs);
  EXPECT_EQ(policy.spin(kNow + 100 * kMs, 10 * kMs), 5 * kMs);
}

TEST(Policy, UrgentStreamsNeedAllCoresThatAQuotaKeepsBusy) {
  Policy all({8, {}, 1, 0}, true),
      half({8, {150 * kMs, 100 * kMs}, 1, 0}, true);
  EXPECT_TRUE(!all.needs_all(7, 4096));
  EXPECT_TRUE(all.needs_all(8, 4096));
  EXPECT_TRUE(all.needs_all(3, 3));
  EXPECT_TRUE(!all.needs_all(0, 0));
  EXPECT_TRUE(!half.needs_all(1, 4096));
  EXPECT_TRUE(half.needs_all(2, 4096));
  all.set_cpus(2);
  EXPECT_TRUE(all.needs_all(2, 4096));
}

TEST(Policy, AKernelHasTheLeastOfItsLimits) {
  EXPECT_EQ(Policy::share(8, 4096, 0, 0), 8);
  EXPECT_EQ(Policy::share(8, 6, 5, 3), 3);
  EXPECT_EQ(Policy::share(8, 6, 3, 5), 3);
  EXPECT_EQ(Policy::share(8, 6, 0, 7), 6);
  EXPECT_EQ(Policy::share(0, 6, 0, 0), 1);
}

TEST(Policy, ASleeperIsWokenOnOtherCpusThanItsWaker) {
  cpu_set_t on;
  EXPECT_TRUE(Policy::woken_on(cpus({1, 2, 3}), 2, on));
  const cpu_set_t others = cpus({1, 3});
  EXPECT_TRUE(CPU_EQUAL(&on, &others));
  EXPECT_TRUE(!Policy::woken_on(cpus({2}), 2, on));
  EXPECT_TRUE(!Policy::woken_on(cpus({1, 3}), 2, on));
  EXPECT_TRUE(!Policy::woken_on(cpus({1, 3}), -1, on));
  EXPECT_TRUE(!Policy::woken_on(cpus({1, 3}), CPU_SETSIZE, on));
}

TEST(Policy, FencesAreFiftyInAMillisecond) {
  Policy policy({64, {}, 1, 0}, true);
  int fences = 0;
  for (uint64_t now = kNow; now < kNow + 1000 * kMs; now += kUs)
    fences += policy.may_fence(now);
  EXPECT_EQ(fences, 50'000);
}

TEST(TeamPolicy, AThreadEndsItsTeamTenTimesASecond) {
  TeamEnds ends;
  int ended = 0;
  for (uint64_t now = kNow; now < kNow + 1000 * kMs; now += kMs)
    ended += ends.due(now);
  EXPECT_EQ(ended, 10);
}

TEST(TeamPolicy, TheCrowdStaysForAWhileAfterWhoAskedLast) {
  using Step = Crowd::Step;
  constexpr uint64_t kStays = tuning::kCrowdStaysNs;
  Crowd crowd;
  const auto step = [&](uint64_t now, uint64_t asked) {
    return crowd.step(now, asked, now);
  };
  EXPECT_TRUE(step(kNow, 0) == Step::kNone);  // nobody ever asked
  EXPECT_EQ(crowd.again(kNow, 0, 0), 0);
  EXPECT_TRUE(step(kNow, kNow) == Step::kGather);
  EXPECT_EQ(crowd.again(kNow + kMs, kNow, kNow), kStays - kMs);
  // Asked again meanwhile, by a thread whose clock is a little ahead.
  EXPECT_TRUE(step(kNow + kMs, kNow + kMs + kUs) == Step::kNone);
  EXPECT_TRUE(step(kNow + kStays, kNow + kMs) == Step::kNone);
  EXPECT_TRUE(step(kNow + kStays + kMs, kNow + kMs) == Step::kDisperse);
  EXPECT_EQ(crowd.again(kNow + kStays + kMs, kNow + kMs, kNow), 0);
  EXPECT_TRUE(step(kNow + 2 * kStays, kNow + kMs) == Step::kNone);
  EXPECT_TRUE(step(kNow + 2 * kStays, kNow + 2 * kStays) == Step::kGather);
}

// A crowd takes a core while it gathers, and shortens nobody's spinning then.
TEST(TeamPolicy, ThereIsNoCrowdWhereNoKernelHasATeam) {
  using Step = Crowd::Step;
  constexpr uint64_t kStays = tuning::kCrowdStaysNs;
  Crowd crowd;
  EXPECT_TRUE(crowd.step(kNow, kNow, 0) == Step::kNone);
  EXPECT_TRUE(crowd.step(kNow, kNow, kNow - tuning::kTeamStaysNs) ==
              Step::kNone);
  EXPECT_TRUE(crowd.step(kNow, kNow, kNow - kMs) == Step::kGather);
  EXPECT_EQ(crowd.again(kNow, kNow, kNow - kMs), kStays);
  const uint64_t later = kNow + tuning::kTeamStaysNs;
  EXPECT_TRUE(crowd.step(later, later, kNow) == Step::kDisperse);
}

// The tests run in children, because the environment is read once.
TEST(Switch, OffLeavesThreadsAlone) {
  setenv("NPU_DISPATCH_PLACEMENT", "off", 1);
  const auto ended = in_child(
      [] { return !policy().on() && SpinGrant(1000).ticks() == 0 ? 0 : 1; });
  unsetenv("NPU_DISPATCH_PLACEMENT");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST(Switch, AWrongValueIsToldAndIsAuto) {
  setenv("NPU_DISPATCH_PLACEMENT", "of", 1);
  const auto ended = in_child([] { return policy().on() ? 0 : 1; });
  unsetenv("NPU_DISPATCH_PLACEMENT");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err,
            "npu_dispatch: NPU_DISPATCH_PLACEMENT=of is not one of auto, off; "
            "using the default\n");
}

}  // namespace
}  // namespace npu
