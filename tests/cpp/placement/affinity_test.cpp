// Which CPUs a thread has while it sleeps and after it was moved, and who
// decides that.
#include "csrc/base/futex.h"
#include "csrc/placement/wake_placement.h"
#include "tests/cpp/system.h"

namespace npu {
namespace {

bool equal(const cpu_set_t& a, const cpu_set_t& b) { return CPU_EQUAL(&a, &b); }

TEST(AffinityLoan, IsGivenBack) {
  AffinityLoan loan;
  EXPECT_TRUE(!loan.narrow(cpus({0, 1, 2}), -1));
  EXPECT_TRUE(loan.changed() && !loan.changed());
  EXPECT_TRUE(loan.narrow(cpus({0, 1, 2}), 1));
  EXPECT_TRUE(equal(loan.set(), cpus({0, 2})));
  EXPECT_TRUE(loan.end(cpus({0, 2})));
  EXPECT_TRUE(equal(loan.owners(), cpus({0, 1, 2})));
  EXPECT_TRUE(!loan.changed());
}

TEST(AffinityLoan, AnotherWakerHasAnotherOfTheOwnersCpus) {
  AffinityLoan loan;
  loan.narrow(cpus({0, 1, 2}), 1);
  EXPECT_TRUE(loan.narrow(cpus({0, 2}), 2));
  EXPECT_TRUE(equal(loan.set(), cpus({0, 1})));
  EXPECT_TRUE(loan.end(cpus({0, 1})));
  EXPECT_TRUE(equal(loan.owners(), cpus({0, 1, 2})));
}

TEST(AffinityLoan, WhatTheOwnerSetMeanwhileStays) {
  AffinityLoan loan;
  loan.narrow(cpus({0, 1, 2, 3}), 1);
  loan.changed();
  EXPECT_TRUE(!loan.end(cpus({1, 3})));
  EXPECT_TRUE(loan.changed());
  EXPECT_TRUE(equal(loan.owners(), cpus({1, 3})));
}

TEST(AffinityLoan, AWakerNarrowsWhatTheOwnerSetMeanwhile) {
  AffinityLoan loan;
  loan.narrow(cpus({0, 1, 2, 3}), 1);
  EXPECT_TRUE(loan.narrow(cpus({1, 3}), 3));
  EXPECT_TRUE(equal(loan.set(), cpus({1})));
  EXPECT_TRUE(loan.end(cpus({1})));
  EXPECT_TRUE(equal(loan.owners(), cpus({1, 3})));
}

TEST(AffinityLoan, NothingIsSetForAWakerOnAnotherCpuNorWhereOneCpuIsLeft) {
  AffinityLoan loan;
  for (const int waker : {2, -1, CPU_SETSIZE})
    EXPECT_TRUE(!loan.narrow(cpus({1, 3}), waker) && !loan.lent());
  EXPECT_TRUE(!loan.narrow(cpus({2}), 2) && !loan.lent());
  EXPECT_TRUE(!loan.end(cpus({2})));
}

TEST(AffinityLoan, WhatCouldNotBeSetIsNotOurs) {
  AffinityLoan loan;
  EXPECT_TRUE(loan.narrow(cpus({0, 1}), 1));
  EXPECT_TRUE(!loan.end(cpus({0, 1})) && !loan.lent());
  EXPECT_TRUE(equal(loan.owners(), cpus({0, 1})));
}

// Sleeps once between before_sleep() and after_sleep(). Returns the CPUs that
// the thread was allowed right after waking up, and at the end. `moved`: its
// owner gives it the waker's CPU after it was told to avoid that.
struct Sleep {
  cpu_set_t woken, after;
};

Sleep sleep_once(WakePlacement& placement, int& waker_cpu, bool moved = false) {
  std::atomic<uint32_t> word{0};
  Sleep sleep;
  pid_t tid = 0;
  std::thread sleeper([&] {
    tid = gettid();
    placement.before_sleep();
    word.store(1, std::memory_order_release);
    futex_wake_all(&word);
    while (word.load(std::memory_order_acquire) != 2) futex_wait(&word, 1, 0);
    sleep.woken = allowed_cpus();
    placement.after_sleep();
    sleep.after = allowed_cpus();
  });
  while (word.load(std::memory_order_acquire) != 1) futex_wait(&word, 0, 0);
  // Stay where we are, so that the CPU can be compared.
  const cpu_set_t before = allowed_cpus();
  waker_cpu = sched_getcpu();
  const cpu_set_t one = cpus({waker_cpu});
  sched_setaffinity(0, sizeof one, &one);
  placement.before_wake();
  sched_setaffinity(0, sizeof before, &before);
  if (moved) sched_setaffinity(tid, sizeof one, &one);
  word.store(2, std::memory_order_release);
  futex_wake_all(&word);
  sleeper.join();
  return sleep;
}

TEST_ALONE(WakePlacement, KeepsTheSleeperOffTheWakersCpuWhileItSleeps) {
  const cpu_set_t all = allowed_cpus();
  WakePlacement placement;
  int cpu;
  const Sleep sleep = sleep_once(placement, cpu);
  if (CPU_COUNT(&all) > 1) {
    EXPECT_TRUE(!CPU_ISSET(cpu, &sleep.woken));
    EXPECT_EQ(CPU_COUNT(&sleep.woken), CPU_COUNT(&all) - 1);
  }
  EXPECT_TRUE(CPU_EQUAL(&sleep.after, &all));
}

TEST_ALONE(WakePlacement, LeavesAThreadAloneThatHasOneCpu) {
  const cpu_set_t all = allowed_cpus();
  const cpu_set_t one = cpus({sched_getcpu()});
  sched_setaffinity(0, sizeof one, &one);
  WakePlacement placement;
  int cpu;
  const Sleep sleep = sleep_once(placement, cpu);
  EXPECT_TRUE(CPU_EQUAL(&sleep.woken, &one));
  EXPECT_TRUE(CPU_EQUAL(&sleep.after, &one));
  sched_setaffinity(0, sizeof all, &all);
}

TEST_ALONE(WakePlacement, WhatTheOwnerSetWhileItSleptStays) {
  const cpu_set_t all = allowed_cpus();
  if (CPU_COUNT(&all) < 2) return;
  WakePlacement placement;
  int cpu;
  const Sleep sleep = sleep_once(placement, cpu, /*moved=*/true);
  EXPECT_EQ(CPU_COUNT(&sleep.after), 1);
  EXPECT_TRUE(CPU_ISSET(cpu, &sleep.after));
}

}  // namespace
}  // namespace npu
