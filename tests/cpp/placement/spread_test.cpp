#include "csrc/placement/spread.h"

#include <sched.h>

#include <initializer_list>

#include "tests/cpp/check.h"

namespace npu {
namespace {

constexpr uint64_t kMs = 1'000'000;
// CPUs that this machine has not, so that no launcher of it works on them.
constexpr int kOne = CPU_SETSIZE - 3, kTwo = CPU_SETSIZE - 2;

cpu_set_t cpus(std::initializer_list<int> of) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : of) CPU_SET(cpu, &set);
  return set;
}

TEST(Spread, TheLaterOfTwoOnACpuGoesToAFreeOne) {
  Seat earlier, later;
  EXPECT_TRUE(!later.crowded(1000 * kMs, kOne));
  EXPECT_TRUE(!earlier.crowded(1000 * kMs, kOne));

  EXPECT_TRUE(later.crowded(1001 * kMs, kOne));
  EXPECT_EQ(later.take_free(1001 * kMs, cpus({kOne, kTwo})), kTwo);

  EXPECT_TRUE(!later.crowded(1002 * kMs, kTwo));
}

TEST(Spread, NobodyGoesWhereAnotherWorksOrMayNotBe) {
  Seat first, second, third;
  first.crowded(1000 * kMs, kOne);
  third.crowded(1000 * kMs, kTwo);

  EXPECT_TRUE(second.crowded(1000 * kMs, kOne));
  EXPECT_EQ(second.take_free(1000 * kMs, cpus({kOne, kTwo})), -1);
  EXPECT_EQ(second.take_free(1000 * kMs, cpus({})), -1);
}

TEST(Spread, ACpuThatHasBeenTakenIsNotFreeForTheNext) {
  Seat first, second, third;
  first.crowded(1000 * kMs, kOne);
  second.crowded(1000 * kMs, kOne);
  third.crowded(1000 * kMs, kOne);

  EXPECT_EQ(second.take_free(1000 * kMs, cpus({kOne, kTwo})), kTwo);
  EXPECT_EQ(third.take_free(1000 * kMs, cpus({kOne, kTwo})), -1);
}

TEST(Spread, OneThatHasNotLookedForLongIsNotAvoided) {
  Seat earlier, later;
  earlier.crowded(2000 * kMs, kOne);

  EXPECT_TRUE(later.crowded(2019 * kMs, kOne));
  EXPECT_TRUE(!later.crowded(2020 * kMs, kOne));
}

TEST(Spread, OneThatIsGoneIsNotAvoided) {
  auto* const earlier = new Seat;
  Seat later;
  earlier->crowded(1000 * kMs, kOne);
  delete earlier;

  EXPECT_TRUE(!later.crowded(1000 * kMs, kOne));
}

// On this machine. Whether the kernel lets a thread stay where it has gone is
// the kernel's; it does so nearly always.
TEST(Spread, AThreadGoesAndMayBeWhereItMightBefore) {
  constexpr int kRounds = 50;
  cpu_set_t allowed, after;
  EXPECT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) return;
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  const cpu_set_t one = cpus({first});
  int gone = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t now = (3000 + 100 * round) * kMs;
    Seat earlier, later;
    earlier.crowded(now, first);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);

    later.look(now);

    gone += sched_getcpu() != first;
    EXPECT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&allowed, &after));
  }
  EXPECT_TRUE(gone > kRounds / 2);
}

}  // namespace
}  // namespace npu
