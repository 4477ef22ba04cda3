// How long and how often an idle launcher looks for work, on a simulated clock.
#include "csrc/placement/idle_policy.h"

#include <algorithm>
#include <vector>

#include "tests/cpp/check.h"

namespace npu {
namespace {

constexpr uint64_t kUs = 100;  // ticks of a microsecond

// Work comes at `work_at`; each pause takes some ticks.
struct World {
  uint64_t now = 5'000;
  uint64_t work_at = ~uint64_t{0};
  uint64_t pause_ticks = 10;
  bool in_haste = false;
  uint64_t rest = 0;
  uint64_t haste_at = ~uint64_t{0};
  uint64_t looks = 0, pauses = 0;
  uint64_t granted = ~uint64_t{0};

  struct Grant {
    uint64_t granted;
    uint64_t ticks() const { return granted; }
  };
  Grant grant(uint64_t wanted) const { return {std::min(wanted, granted)}; }
  uint64_t ticks() const { return now; }
  void pause() {
    ++pauses;
    now += pause_ticks;
  }
  bool work() {
    ++looks;
    return now >= work_at;
  }
  bool awaited() const { return in_haste || now >= haste_at; }
  uint64_t rest_ticks() const { return rest; }
};

// How long it looks where no work comes.
uint64_t vain(IdlePolicy& idle, uint64_t pause_ticks = 10) {
  World world;
  world.pause_ticks = pause_ticks;
  const uint64_t start = world.now;
  uint64_t gap = 0;
  EXPECT_TRUE(!idle.look(world, gap));
  return world.now - start;
}

// Finds work after `us` while looking.
bool found(IdlePolicy& idle, uint64_t us) {
  World world;
  world.work_at = world.now + us * kUs;
  uint64_t gap = 0;
  const bool was = idle.look(world, gap);
  if (was) {
    EXPECT_TRUE(gap >= us * kUs && gap < us * kUs + 10);
  }
  return was;
}

TEST(IdlePolicy, LooksForFourTimesTheUsualGap) {
  IdlePolicy idle(kUs);
  EXPECT_EQ(vain(idle), 60 * kUs);  // at first
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(found(idle, 5));
  EXPECT_TRUE(vain(idle) >= 20 * kUs && vain(idle) <= 21 * kUs);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(found(idle, 1));
  EXPECT_EQ(vain(idle), 10 * kUs);  // no less
}

// One gap of 13 us among gaps of 5 us moves the mean by an eighth of the
// difference.
TEST(IdlePolicy, SmoothsItsGaps) {
  IdlePolicy idle(kUs);
  for (int i = 0; i < 100; ++i) found(idle, 5);
  found(idle, 13);
  const uint64_t four_means = 4 * (7 * 5 + 13) * kUs / 8;
  EXPECT_TRUE(vain(idle) + 40 >= four_means && vain(idle) <= four_means + 40);
}

TEST(IdlePolicy, LooksLittleWhereGapsAreLong) {
  IdlePolicy idle(kUs);
  for (int i = 0; i < 20; ++i) idle.slept(400 * kUs);
  EXPECT_EQ(vain(idle), 10 * kUs);
}

// A mean gap that is just as long as the longest spin still counts as one.
TEST(IdlePolicy, LooksAsLongAsItMayForTheLongestGapThatItSpinsFor) {
  IdlePolicy idle(kUs), longer(kUs);
  idle.slept(375 * kUs);  // (7 * 15 + 375) / 8 = 60
  longer.slept(376 * kUs);
  EXPECT_EQ(vain(idle), 60 * kUs);
  EXPECT_EQ(vain(longer), 10 * kUs);
}

// A pause of a second counts as 480 us, so that a few short gaps outweigh it.
TEST(IdlePolicy, ForgetsALongPauseSoon) {
  IdlePolicy idle(kUs);
  for (int i = 0; i < 100; ++i) idle.slept(1'000'000 * kUs);
  int gaps = 0;
  while (vain(idle) == 10 * kUs && gaps < 100) {
    EXPECT_TRUE(found(idle, 4));
    ++gaps;
  }
  // 480 * (7/8)^n, and what 4 us add, is below 60 first for this n.
  EXPECT_EQ(gaps, 17);
}

TEST(IdlePolicy, IsPatientWhileThatFindsWork) {
  IdlePolicy idle(kUs);
  for (int i = 0; i < 50; ++i) found(idle, 1);
  EXPECT_EQ(vain(idle), 10 * kUs);
  idle.slept(249 * kUs);  // longer looking would have found it
  EXPECT_EQ(vain(idle), 250 * kUs);
  EXPECT_TRUE(found(idle, 249));
  idle.slept(250 * kUs);  // two steps back
  EXPECT_TRUE(vain(idle) < 250 * kUs);
}

// However often patience has paid off, four failures end it.
TEST(IdlePolicy, EndsItsPatienceAfterFourVainTimes) {
  IdlePolicy idle(kUs);
  for (int i = 0; i < 100; ++i) idle.slept(200 * kUs);
  for (int i = 0; i < 3; ++i) {
    idle.slept(300 * kUs);
    EXPECT_EQ(vain(idle), 250 * kUs);
  }
  idle.slept(300 * kUs);
  EXPECT_EQ(vain(idle), 10 * kUs);
  for (int i = 0; i < 4; ++i) idle.slept(300 * kUs);
  idle.slept(200 * kUs);  // no debt is left
  EXPECT_EQ(vain(idle), 250 * kUs);
}

// Work that a short spin would have found does not raise patience; work that
// only a patient spin finds does.
TEST(IdlePolicy, CountsForPatienceWhatOnlyItFinds) {
  IdlePolicy idle(kUs);
  for (int i = 0; i < 50; ++i) found(idle, 1);
  idle.slept(200 * kUs);
  for (int i = 0; i < 50; ++i) found(idle, 1);
  idle.slept(300 * kUs);  // 1 - 2
  EXPECT_TRUE(vain(idle) < 250 * kUs);
  idle.slept(200 * kUs);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(found(idle, 240));
  idle.slept(300 * kUs);  // 4 - 2
  EXPECT_EQ(vain(idle), 250 * kUs);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(found(idle, 240));
  for (int i = 0; i < 4; ++i) idle.slept(300 * kUs);  // 8 at most
  EXPECT_TRUE(vain(idle) < 250 * kUs);
}

TEST(IdlePolicy, NeedsNoPatienceForWhatTheShortSpinFinds) {
  for (const uint64_t us : {9, 10, 11}) {
    IdlePolicy idle(kUs);
    for (int i = 0; i < 50; ++i) found(idle, 1);
    for (int i = 0; i < 2; ++i) idle.slept(200 * kUs);
    for (int i = 0; i < 150; ++i) found(idle, 1);  // usual again
    EXPECT_TRUE(found(idle, us));
    idle.slept(300 * kUs);  // 2 or 3, less 2
    EXPECT_EQ(vain(idle) == 250 * kUs, us == 11);
  }
}

TEST(IdlePolicy, LooksNoLongerThanItMay) {
  IdlePolicy idle(kUs);
  World world;
  world.granted = (7 + 24) * kUs;  // with the longest rest
  const uint64_t start = world.now;
  uint64_t gap = 0;
  EXPECT_TRUE(!idle.look(world, gap));
  EXPECT_EQ(world.now - start, 7 * kUs);
}

TEST(IdlePolicy, DoesNotLookWhereItMayNot) {
  IdlePolicy idle(kUs);
  idle.slept(20 * kUs);
  World world;
  world.work_at = 0;
  world.granted = 0;
  uint64_t gap = 0;
  EXPECT_TRUE(!idle.look(world, gap));
  EXPECT_EQ(world.looks, 0);
}

// Longer than 200 us between two looks: another thread has taken the core.
TEST(IdlePolicy, GivesUpFor32GapsWhenItsCoreWasTaken) {
  IdlePolicy idle(kUs);
  EXPECT_TRUE(vain(idle, 200 * kUs) > 0);
  EXPECT_TRUE(vain(idle, 200 * kUs) > 0);  // an interrupt is none
  EXPECT_TRUE(vain(idle, 200 * kUs + 1) > 0);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(vain(idle), 0);
  EXPECT_EQ(vain(idle), 60 * kUs);
}

TEST(IdlePolicy, RestsBetweenTwoLooks) {
  IdlePolicy idle(kUs);
  World world;
  world.rest = 5 * kUs;
  uint64_t gap = 0;
  EXPECT_TRUE(!idle.look(world, gap));
  EXPECT_EQ(world.looks, 12);  // in 60 us, each after its rest and a pause
  EXPECT_TRUE(world.pauses >= 12 * 50);
}

TEST(IdlePolicy, LooksAllTheTimeInHaste) {
  IdlePolicy idle(kUs);
  World world;
  world.rest = 5 * kUs;
  world.in_haste = true;
  uint64_t gap = 0;
  EXPECT_TRUE(!idle.look(world, gap));
  EXPECT_EQ(world.looks, world.pauses);
  // 600 pauses of 0.1 us, up to the end of a round of 16.
  EXPECT_EQ(world.looks, 608);
}

TEST(IdlePolicy, EndsItsRestWhenSomebodyIsInHaste) {
  IdlePolicy idle(kUs);
  World world;
  world.rest = 1000 * kUs;
  world.haste_at = world.now + 3 * kUs;
  world.work_at = world.haste_at;
  uint64_t gap = 0;
  EXPECT_TRUE(idle.look(world, gap));
  EXPECT_EQ(gap, 3 * kUs);
}

TEST(IdlePolicy, IsInHasteForSixteenTasksAfterTheLastWanted) {
  EXPECT_TRUE(IdlePolicy::awaited(100, 50));
  EXPECT_TRUE(IdlePolicy::awaited(100, 115));
  EXPECT_TRUE(!IdlePolicy::awaited(100, 116));
}

TEST(IdlePolicy, RestsTwiceAsLongForFourTimesTheTasks) {
  const auto us = [](uint64_t tasks) {
    return IdlePolicy::rest_ns(1000, 1000 + tasks) / 1000;
  };
  EXPECT_EQ(IdlePolicy::rest_ns(1000, 10), 3'000);
  EXPECT_EQ(us(0), 3);
  EXPECT_EQ(us(31), 3);
  EXPECT_EQ(us(32), 6);
  EXPECT_EQ(us(127), 6);
  EXPECT_EQ(us(128), 12);
  EXPECT_EQ(us(511), 12);
  EXPECT_EQ(us(512), 24);
  EXPECT_EQ(us(1'000'000), 24);
}

}  // namespace
}  // namespace npu
