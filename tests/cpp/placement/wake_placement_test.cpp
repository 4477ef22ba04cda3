#include "csrc/placement/wake_placement.h"

#include <thread>

#include "csrc/base/futex.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

cpu_set_t allowed() {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  return cpus;
}

// Sleeps once between before_sleep() and after_sleep(); what it was allowed to
// run on right after waking up, and after all.
struct Sleep {
  cpu_set_t woken, after;
};

Sleep sleep_once(WakePlacement& placement, int& waker_cpu) {
  std::atomic<uint32_t> word{0};
  Sleep sleep;
  std::thread sleeper([&] {
    placement.before_sleep();
    word.store(1, std::memory_order_release);
    futex_wake_all(&word);
    while (word.load(std::memory_order_acquire) != 2) futex_wait(&word, 1, 0);
    sleep.woken = allowed();
    placement.after_sleep();
    sleep.after = allowed();
  });
  while (word.load(std::memory_order_acquire) != 1) futex_wait(&word, 0, 0);
  // Stay where we are, so that the CPU can be compared.
  const cpu_set_t before = allowed();
  cpu_set_t one;
  CPU_ZERO(&one);
  waker_cpu = sched_getcpu();
  CPU_SET(waker_cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
  placement.before_wake();
  sched_setaffinity(0, sizeof before, &before);
  word.store(2, std::memory_order_release);
  futex_wake_all(&word);
  sleeper.join();
  return sleep;
}

TEST(WakePlacement, KeepsTheSleeperOffTheWakersCpuWhileItSleeps) {
  const cpu_set_t all = allowed();
  WakePlacement placement;
  int cpu;
  const Sleep sleep = sleep_once(placement, cpu);
  if (CPU_COUNT(&all) > 1) {
    EXPECT_TRUE(!CPU_ISSET(cpu, &sleep.woken));
    EXPECT_EQ(CPU_COUNT(&sleep.woken), CPU_COUNT(&all) - 1);
  }
  EXPECT_TRUE(CPU_EQUAL(&sleep.after, &all));
}

TEST(WakePlacement, LeavesAThreadAloneThatHasOneCpu) {
  const cpu_set_t all = allowed();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one);
  WakePlacement placement;
  int cpu;
  const Sleep sleep = sleep_once(placement, cpu);
  EXPECT_TRUE(CPU_EQUAL(&sleep.woken, &one));
  EXPECT_TRUE(CPU_EQUAL(&sleep.after, &one));
  sched_setaffinity(0, sizeof all, &all);
}

}  // namespace
}  // namespace npu
