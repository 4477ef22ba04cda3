// What is decided about cores: from what a machine says about itself, how many
// there are to share, how much spinning and interrupting a process may do, and
// whether somebody else needs a core.
#include "csrc/placement/policy.h"
#include "csrc/placement/launcher_placement.h"
#include "csrc/placement/machine.h"
#include "csrc/placement/tuning.h"
#include "tests/cpp/system.h"

namespace npu {
namespace {

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

TEST(Policy, AllSpinWhereThereAreCoresAndNobodyOnTheOnlyOne) {
  Policy policy({1, {}, 1}, true);
  EXPECT_EQ(policy.spin(kNow, 250 * kUs), 0);
  policy.set_cpus(2);  // taskset
  EXPECT_TRUE(policy.spins_freely());
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(policy.spin(kNow, 250 * kUs), 250 * kUs);
  policy.set_cpus(1);
  EXPECT_EQ(policy.spin(kNow, 250 * kUs), 0);
}

// Four processes share the time of 1.6 cores, an eighth of which may go to
// spinning.
TEST(Policy, SpinningIsAPartOfTheQuota) {
  Policy policy({64, {160 * kMs, 100 * kMs}, 4}, true);
  uint64_t spun = 0;
  for (int i = 0; i < 1000; ++i) spun += policy.spin(kNow, 100 * kUs);
  EXPECT_EQ(spun, 5 * kMs);
  policy.unused_spin(kNow, 2 * kMs);
  EXPECT_EQ(policy.spin(kNow, 10 * kMs), 2 * kMs);
  EXPECT_EQ(policy.spin(kNow + 100 * kMs, 10 * kMs), 5 * kMs);
}

TEST(Policy, UrgentStreamsNeedAllCoresThatAQuotaKeepsBusy) {
  Policy all({8, {}, 1}, true), half({8, {150 * kMs, 100 * kMs}, 1}, true);
  EXPECT_TRUE(!all.needs_all(7, 4096));
  EXPECT_TRUE(all.needs_all(8, 4096));
  EXPECT_TRUE(all.needs_all(3, 3));
  EXPECT_TRUE(!all.needs_all(0, 0));
  EXPECT_TRUE(!half.needs_all(1, 4096));
  EXPECT_TRUE(half.needs_all(2, 4096));
  all.set_cpus(2);
  EXPECT_TRUE(all.needs_all(2, 4096));
}

// Processes of one program that share `all` CPUs, of which this one may run on
// `own`.
int part(int own, int sharers, int all, Quota quota = {}) {
  return Policy({own, quota, sharers, all}, true).part();
}

TEST(Policy, RanksOfAMachineDivideItsCores) {
  EXPECT_EQ(part(8, 2, 8), 4);
  EXPECT_EQ(part(8, 3, 8), 2);
  EXPECT_EQ(part(2, 4, 2), 1);        // at least
  EXPECT_TRUE(part(8, 1, 8) > 4096);  // no sharers: no limit
  // Ranks that are bound to cores of their own keep them.
  EXPECT_EQ(part(4, 2, 8), 4);
  EXPECT_EQ(part(3, 2, 8), 3);
  EXPECT_EQ(part(4, 4, 8), 2);  // two ranks on each half
  // What a quota keeps busy.
  EXPECT_EQ(part(64, 2, 64, {400 * kMs, 100 * kMs}), 2);
  EXPECT_EQ(part(64, 4, 64, {150 * kMs, 100 * kMs}), 1);
  EXPECT_EQ(part(2, 2, 4, {800 * kMs, 100 * kMs}), 2);
}

TEST(Policy, FencesAreFiftyInAMillisecond) {
  Policy policy({64, {}, 1}, true);
  int fences = 0;
  for (uint64_t now = kNow; now < kNow + 1000 * kMs; now += kUs)
    fences += policy.may_fence(now);
  EXPECT_EQ(fences, 50'000);
}

// Launches `n` tasks, one in each `every` ns. Returns until when a core is
// wanted after them.
uint64_t launch(OtherWork& work, uint64_t& now, uint64_t& tail, int n,
                uint64_t every) {
  uint64_t until = 0;
  for (int i = 0; i < n; ++i)
    until = std::max(until, work.launches(now += every, ++tail));
  return until;
}

TEST(OtherWork, ACallerNeedsACoreThatLaunchesOneTaskAfterTheOther) {
  uint64_t now = kNow, tail = 0;
  OtherWork work;
  work.wakes(now, ++tail);
  EXPECT_EQ(launch(work, now, tail, 7, 10 * kUs), 0);  // too few to say
  const uint64_t until_then = launch(work, now, tail, 1, 10 * kUs);
  EXPECT_EQ(until_then, now + tuning::kCrowdStaysNs);
  // A token's tasks, then a short pause, again and again.
  uint64_t until = 0;
  for (int token = 0; token < 10; ++token) {
    work.wakes(now += 40 * kUs, ++tail);
    until = std::max(until, launch(work, now, tail, 5, 5 * kUs));
  }
  EXPECT_TRUE(until > now);
}

TEST(OtherWork, ACallerThatLaunchesAStepAtATimeNeedsNone) {
  uint64_t now = kNow, tail = 0;
  OtherWork work;
  EXPECT_EQ(launch(work, now, tail, 160, kMs), 0);
  // Nor where it waits for each.
  for (int step = 0; step < 100; ++step) {
    work.wakes(now += kMs, ++tail);
    EXPECT_EQ(work.launches(now + 100 * kUs, tail), 0);
  }
}

// Asks once in each `window`, in which a launcher waits `times` times for a
// core, `ns` in all; returns what it was told each time.
std::vector<bool> ask(OtherWork& work, uint64_t window, uint64_t ns,
                      uint64_t times) {
  std::vector<bool> found;
  CoreWaits waits;
  uint64_t now = kNow;
  work.waited(now, waits);
  for (int i = 0; i < 4; ++i) {
    now += window;
    EXPECT_TRUE(work.asks(now));
    EXPECT_TRUE(!work.asks(now - window + kMs));
    waits = {waits.ns + ns, waits.times + times};
    const uint64_t until = work.waited(now, waits);
    EXPECT_TRUE(!until || until == now + tuning::kNeighboursStayNs);
    found.push_back(until);
  }
  return found;
}

TEST(OtherWork, ALauncherThatWaitsLongForItsCoreHasANeighbour) {
  using Found = std::vector<bool>;
  const auto asked = [](auto... numbers) {
    OtherWork work;
    return ask(work, numbers...);
  };
  // A slice of the scheduler's now and then; the second time it is believed.
  EXPECT_TRUE(asked(20 * kMs, 8 * kMs, 2) == Found({false, true, true, true}));
  EXPECT_TRUE(asked(100 * kMs, 50 * kMs, 14) ==
              Found({false, true, true, true}));
  EXPECT_TRUE(asked(20 * kMs, 3 * kMs, 1) == Found(4));  // seldom
  // Its own team's threads, which take turns with it.
  EXPECT_TRUE(asked(20 * kMs, 8 * kMs, 400) == Found(4));
  // Where the system does not tell.
  EXPECT_TRUE(asked(20 * kMs, 0, 0) == Found(4));
}

TEST_ALONE(Switch, OffLeavesThreadsAlone) {
  setenv("NPU_DISPATCH_PLACEMENT", "off", 1);
  EXPECT_TRUE(!policy().on());
  EXPECT_EQ(SpinGrant(1000).ticks(), 1000);
}

TEST(Switch, AWrongValueIsToldAndIsAuto) {
  const auto ended = in_child([] {
    setenv("NPU_DISPATCH_PLACEMENT", "of", 1);
    return policy().on() ? 0 : 1;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err,
            "npu_dispatch: NPU_DISPATCH_PLACEMENT=of is not one of auto, off; "
            "using the default\n");
}

void expect_quota(const Quota& quota, uint64_t ns, uint64_t period_ns) {
  EXPECT_EQ(quota.ns, ns);
  EXPECT_EQ(quota.period_ns, period_ns);
}

TEST(Machine, ReadsAQuota) {
  expect_quota(parse_cpu_max("150000 100000\n"), 150 * kMs, 100 * kMs);
  expect_quota(parse_cpu_max("50000"), 50 * kMs, 100 * kMs);
  for (const char* none : {"", "max 100000", "max", "-1 100000", "0 100000",
                           "1000 0", "9999999999999 1"})
    expect_quota(parse_cpu_max(none), 0, 0);
}

TEST(Machine, HasTheTightestQuotaOfItsGroups) {
  TemporaryFolder files;
  expect_quota(cgroup_quota("0::/a/b\n", files.path), 0, 0);
  files.write("a/b/cpu.max", "max 100000");
  expect_quota(cgroup_quota("0::/a/b\n", files.path), 0, 0);
  files.write("a/cpu.max", "150000 50000");  // 3 cores
  files.write("cpu.max", "400000 100000");   // 4
  expect_quota(cgroup_quota("0::/a/b\n", files.path), 150 * kMs, 50 * kMs);
  files.write("a/b/cpu.max", "200000 100000");  // 2
  expect_quota(cgroup_quota("0::/a/b\n", files.path), 200 * kMs, 100 * kMs);
  // A container sees its own mount, but the name that its group has on the
  // host.
  expect_quota(cgroup_quota("0::/not/here\n", files.path), 400 * kMs,
               100 * kMs);
}

TEST(Machine, KnowsTheFirstVersionOfControlGroups) {
  TemporaryFolder files;
  files.write("cpu/c/cpu.cfs_quota_us", "50000");
  files.write("cpu/c/cpu.cfs_period_us", "100000");
  files.write("cpu/cpu.cfs_quota_us", "-1");
  files.write("cpu/cpu.cfs_period_us", "100000");
  const std::string text = "5:cpu,cpuacct:/c\n4:cpuset:/d\n0::/e\n";
  expect_quota(cgroup_quota(text, files.path), 50 * kMs, 100 * kMs);
  expect_quota(cgroup_quota("5:cpuset:/c\n", files.path), 0, 0);
}

}  // namespace
}  // namespace npu
