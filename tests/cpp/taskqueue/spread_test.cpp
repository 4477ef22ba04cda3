#include "csrc/taskqueue/spread.h"

#include <sched.h>

#include "tests/cpp/check.h"

namespace npu {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Puts this thread on its first CPU; it may use all that it could before.
int on_first_cpu(const cpu_set_t& allowed) {
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
  return first;
}

TEST(Spread, TheLaterOfTwoOnACpuGoesToAFreeOne) {
  cpu_set_t allowed, after;
  EXPECT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) return;
  Seat earlier, later;
  const int cpu = on_first_cpu(allowed);

  later.look(1000 * kMs);
  earlier.look(1000 * kMs);
  EXPECT_EQ(sched_getcpu(), cpu);
  later.look(1001 * kMs);

  EXPECT_TRUE(sched_getcpu() != cpu);
  EXPECT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&allowed, &after));
}

TEST(Spread, OneThatHasNotLookedForLongIsNotAvoided) {
  cpu_set_t allowed;
  EXPECT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) return;
  Seat earlier, later;
  const int cpu = on_first_cpu(allowed);

  earlier.look(2000 * kMs);
  later.look(2100 * kMs);

  EXPECT_EQ(sched_getcpu(), cpu);
}

}  // namespace
}  // namespace npu
