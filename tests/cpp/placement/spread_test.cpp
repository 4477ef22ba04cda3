// Where launchers that share a CPU move.
#include "csrc/placement/spread.h"

#include <sched.h>

#include <memory>

#include "csrc/placement/this_machine.h"
#include "tests/cpp/check.h"
#include "tests/cpp/placement/cpus.h"

namespace npu {
namespace {

using check::cpus;

constexpr uint64_t kMs = 1'000'000;

// Launchers of a process on a machine that is not this one.
struct Process {
  explicit Process(uint32_t seed = 7) : policy({8, {}, 1, seed}, true) {}
  int go(int seat, uint64_t now, Whereabouts at, const cpu_set_t& allowed) {
    return policy.place(seat, now, at, allowed, topology);
  }

  Policy policy;
  Topology topology;
};

TEST(Spread, TheLaterOfTwoOnACpuGoesToAFreeOne) {
  Process p;
  const int earlier = p.policy.take_seat(), later = p.policy.take_seat();
  EXPECT_TRUE(!p.policy.crowded(later, 1000 * kMs, 5));
  EXPECT_TRUE(!p.policy.crowded(earlier, 1000 * kMs, 5));

  EXPECT_EQ(p.go(later, 1001 * kMs, {5, -1}, cpus({5, 6})), 6);

  EXPECT_TRUE(!p.policy.crowded(later, 1002 * kMs, 6));
}

TEST(Spread, NobodyGoesWhereAnotherWorksOrMayNotBe) {
  Process p;
  const int first = p.policy.take_seat(), second = p.policy.take_seat(),
            third = p.policy.take_seat();
  p.policy.crowded(first, 1000 * kMs, 5);
  p.policy.crowded(third, 1000 * kMs, 6);

  EXPECT_EQ(p.go(second, 1000 * kMs, {5, -1}, cpus({5, 6})), -1);
  EXPECT_EQ(p.go(second, 1000 * kMs, {5, -1}, cpus({})), -1);
}

TEST(Spread, ACpuThatHasBeenTakenIsNotFreeForTheNext) {
  Process p;
  const int first = p.policy.take_seat(), second = p.policy.take_seat(),
            third = p.policy.take_seat();
  for (const int seat : {first, second, third})
    p.policy.crowded(seat, 1000 * kMs, 5);

  EXPECT_EQ(p.go(second, 1000 * kMs, {5, -1}, cpus({5, 6})), 6);
  EXPECT_EQ(p.go(third, 1000 * kMs, {5, -1}, cpus({5, 6})), -1);
}

TEST(Spread, OneThatHasNotLookedForLongIsNotAvoided) {
  Process p;
  const int earlier = p.policy.take_seat(), later = p.policy.take_seat();
  p.policy.crowded(earlier, 2000 * kMs, 5);

  EXPECT_TRUE(p.policy.crowded(later, 2019 * kMs, 5));
  EXPECT_TRUE(!p.policy.crowded(later, 2020 * kMs, 5));
}

TEST(Spread, OneThatIsGoneIsNotAvoidedAndItsSeatIsFree) {
  Process p;
  const int earlier = p.policy.take_seat(), later = p.policy.take_seat();
  p.policy.crowded(earlier, 1000 * kMs, 5);
  p.policy.leave_seat(earlier);

  EXPECT_TRUE(!p.policy.crowded(later, 1000 * kMs, 5));
  EXPECT_EQ(p.policy.take_seat(), earlier);
}

TEST(Spread, TheProducersCpuIsTheLastToTake) {
  for (uint32_t seed = 0; seed < 32; ++seed) {
    Process p(seed);
    const int first = p.policy.take_seat(), second = p.policy.take_seat();
    p.policy.crowded(first, 1000 * kMs, 5);

    EXPECT_EQ(p.go(second, 1000 * kMs, {5, 2}, cpus({2, 5, 6})), 6);
    EXPECT_EQ(p.go(second, 1000 * kMs, {5, 2}, cpus({2, 5})), 2);
  }
}

TEST(Spread, NearTheProducersMemoryThenOnACoreOfItsOwn) {
  Process p;
  // Two nodes of two cores of two threads: core of CPU n and n + 4, node of
  // cores 0, 1 and 2, 3.
  for (int cpu = 0; cpu < 8; ++cpu) {
    p.topology.core[cpu] = int16_t(cpu % 4);
    p.topology.node[cpu] = int16_t(cpu % 4 / 2);
  }
  p.topology.distances = {{10, 21}, {21, 10}};
  const int first = p.policy.take_seat(), second = p.policy.take_seat();
  p.policy.crowded(first, 1000 * kMs, 2);

  // The producer is in node 0 on core 0, and nobody uses core 1.
  EXPECT_EQ(p.go(second, 1000 * kMs, {2, 0}, cpus({0, 1, 2, 3, 4})), 1);
  // It goes rather beside the producer than to the other node.
  EXPECT_EQ(p.go(second, 1000 * kMs, {2, 0}, cpus({0, 2, 3, 4})), 4);
  EXPECT_EQ(p.go(second, 1000 * kMs, {2, 0}, cpus({0, 2, 3})), 3);
  // Where the producer is not known, the launcher's own node counts.
  EXPECT_EQ(p.go(second, 1000 * kMs, {2, -1}, cpus({0, 1, 3, 6})), 3);
}

TEST(Spread, NobodyHasASeatWherePlacementIsOff) {
  Policy off({8, {}, 1, 0}, false);
  EXPECT_EQ(off.take_seat(), -1);
  EXPECT_TRUE(!off.crowded(-1, 1000 * kMs, 5));
}

TEST(Spread, ThereAreSixtyFourSeats) {
  Process p;
  for (int seat = 0; seat < 64; ++seat) EXPECT_EQ(p.policy.take_seat(), seat);
  EXPECT_EQ(p.policy.take_seat(), -1);
}

// On this machine. Where the thread is before and after is the kernel's choice.
TEST(Spread, AThreadGoesAndMayBeWhereItMightBefore) {
  cpu_set_t allowed, after;
  EXPECT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) return;
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  for (uint64_t round = 0; round < 50; ++round) {
    const uint64_t now = (3000 + 100 * round) * kMs;
    const int earlier = policy().take_seat();
    Seat later;
    policy().crowded(earlier, now, first);

    const int gone = later.look(now, Whereabouts{first, -1});

    policy().leave_seat(earlier);
    EXPECT_TRUE(gone != first && gone >= 0 && CPU_ISSET(gone, &allowed));
    EXPECT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&allowed, &after));
  }
}

}  // namespace
}  // namespace npu
