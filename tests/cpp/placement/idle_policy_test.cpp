// How long an idle launcher and a waiting host look for work, on a simulated
// clock.
#include "csrc/placement/idle_policy.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

constexpr uint64_t kTicksPerUs = 100;  // ticks of a microsecond

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
uint64_t look_in_vain(IdlePolicy& idle, World& world) {
  const uint64_t start = world.now;
  uint64_t gap = 0;
  EXPECT_TRUE(!idle.look(world, gap));
  return world.now - start;
}
uint64_t vain(IdlePolicy& idle, uint64_t pause_ticks = 10) {
  World world{.pause_ticks = pause_ticks};
  return look_in_vain(idle, world);
}

// Finds work after `us` while looking.
bool found(IdlePolicy& idle, uint64_t us) {
  World world;
  world.work_at = world.now + us * kTicksPerUs;
  uint64_t gap = 0;
  const bool was = idle.look(world, gap);
  if (was) {
    EXPECT_TRUE(gap >= us * kTicksPerUs && gap < us * kTicksPerUs + 10);
  }
  return was;
}

TEST(IdlePolicy, LooksForFourTimesTheUsualGap) {
  IdlePolicy idle(kTicksPerUs);
  EXPECT_EQ(vain(idle), 60 * kTicksPerUs);  // at first
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(found(idle, 5));
  EXPECT_TRUE(vain(idle) >= 20 * kTicksPerUs && vain(idle) <= 21 * kTicksPerUs);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(found(idle, 1));
  EXPECT_EQ(vain(idle), 10 * kTicksPerUs);  // no less
}

// One gap of 13 us among gaps of 5 us moves the mean by an eighth of the
// difference.
TEST(IdlePolicy, SmoothsItsGaps) {
  IdlePolicy idle(kTicksPerUs);
  for (int i = 0; i < 100; ++i) found(idle, 5);
  found(idle, 13);
  const uint64_t four_means = 4 * (7 * 5 + 13) * kTicksPerUs / 8;
  EXPECT_TRUE(vain(idle) + 40 >= four_means && vain(idle) <= four_means + 40);
}

// A mean gap that is just as long as the longest spin still counts as one.
TEST(IdlePolicy, LooksAsLongAsItMayForTheLongestGapThatItSpinsFor) {
  IdlePolicy idle(kTicksPerUs), longer(kTicksPerUs);
  idle.slept(375 * kTicksPerUs);  // (7 * 15 + 375) / 8 = 60
  longer.slept(376 * kTicksPerUs);
  EXPECT_EQ(vain(idle), 60 * kTicksPerUs);
  EXPECT_EQ(vain(longer), 10 * kTicksPerUs);
}

// A pause of a second counts as 480 us, so that a few short gaps outweigh it.
TEST(IdlePolicy, ForgetsALongPauseSoon) {
  IdlePolicy idle(kTicksPerUs);
  for (int i = 0; i < 100; ++i) idle.slept(1'000'000 * kTicksPerUs);
  int gaps = 0;
  while (vain(idle) == 10 * kTicksPerUs && gaps < 100) {
    EXPECT_TRUE(found(idle, 4));
    ++gaps;
  }
  // 480 * (7/8)^n, and what 4 us add, is below 60 first for this n.
  EXPECT_EQ(gaps, 17);
}

TEST(IdlePolicy, IsPatientWhileThatFindsWork) {
  IdlePolicy idle(kTicksPerUs);
  for (int i = 0; i < 50; ++i) found(idle, 1);
  EXPECT_EQ(vain(idle), 10 * kTicksPerUs);
  idle.slept(249 * kTicksPerUs);  // longer looking would have found it
  EXPECT_EQ(vain(idle), 250 * kTicksPerUs);
  EXPECT_TRUE(found(idle, 249));
  idle.slept(250 * kTicksPerUs);  // two steps back
  EXPECT_TRUE(vain(idle) < 250 * kTicksPerUs);
}

// However often patience has paid off, four failures end it.
TEST(IdlePolicy, EndsItsPatienceAfterFourVainTimes) {
  IdlePolicy idle(kTicksPerUs);
  for (int i = 0; i < 100; ++i) idle.slept(200 * kTicksPerUs);
  for (int i = 0; i < 3; ++i) {
    idle.slept(300 * kTicksPerUs);
    EXPECT_EQ(vain(idle), 250 * kTicksPerUs);
  }
  idle.slept(300 * kTicksPerUs);
  EXPECT_EQ(vain(idle), 10 * kTicksPerUs);
  for (int i = 0; i < 4; ++i) idle.slept(300 * kTicksPerUs);
  idle.slept(200 * kTicksPerUs);  // no debt is left
  EXPECT_EQ(vain(idle), 250 * kTicksPerUs);
}

// Work that a short spin would have found does not raise patience; work that
// only a patient spin finds does.
TEST(IdlePolicy, CountsForPatienceWhatOnlyItFinds) {
  IdlePolicy idle(kTicksPerUs);
  for (int i = 0; i < 50; ++i) found(idle, 1);
  idle.slept(200 * kTicksPerUs);
  for (int i = 0; i < 50; ++i) found(idle, 1);
  idle.slept(300 * kTicksPerUs);  // 1 - 2
  EXPECT_TRUE(vain(idle) < 250 * kTicksPerUs);
  idle.slept(200 * kTicksPerUs);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(found(idle, 240));
  idle.slept(300 * kTicksPerUs);  // 4 - 2
  EXPECT_EQ(vain(idle), 250 * kTicksPerUs);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(found(idle, 240));
  for (int i = 0; i < 4; ++i) idle.slept(300 * kTicksPerUs);  // 8 at most
  EXPECT_TRUE(vain(idle) < 250 * kTicksPerUs);
}

TEST(IdlePolicy, NeedsNoPatienceForWhatTheShortSpinFinds) {
  for (const uint64_t us : {9, 10, 11}) {
    IdlePolicy idle(kTicksPerUs);
    for (int i = 0; i < 50; ++i) found(idle, 1);
    for (int i = 0; i < 2; ++i) idle.slept(200 * kTicksPerUs);
    for (int i = 0; i < 150; ++i) found(idle, 1);  // usual again
    EXPECT_TRUE(found(idle, us));
    idle.slept(300 * kTicksPerUs);  // 2 or 3, less 2
    EXPECT_EQ(vain(idle) == 250 * kTicksPerUs, us == 11);
  }
}

TEST(IdlePolicy, LooksNoLongerThanItMay) {
  IdlePolicy idle(kTicksPerUs);
  World world{.granted = (7 + 24) * kTicksPerUs};  // with the longest rest
  EXPECT_EQ(look_in_vain(idle, world), 7 * kTicksPerUs);
}

TEST(IdlePolicy, DoesNotLookWhereItMayNot) {
  IdlePolicy idle(kTicksPerUs);
  idle.slept(20 * kTicksPerUs);
  World world{.work_at = 0, .granted = 0};
  look_in_vain(idle, world);
  EXPECT_EQ(world.looks, 0);
}

// Longer than 200 us between two looks: another thread has taken the core.
TEST(IdlePolicy, GivesUpFor32GapsWhenItsCoreWasTaken) {
  IdlePolicy idle(kTicksPerUs);
  EXPECT_TRUE(vain(idle, 200 * kTicksPerUs) > 0);
  EXPECT_TRUE(vain(idle, 200 * kTicksPerUs) > 0);  // an interrupt is none
  EXPECT_TRUE(vain(idle, 200 * kTicksPerUs + 1) > 0);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(vain(idle), 0);
  EXPECT_EQ(vain(idle), 60 * kTicksPerUs);
}

TEST(IdlePolicy, RestsBetweenTwoLooks) {
  IdlePolicy idle(kTicksPerUs);
  World world{.rest = 5 * kTicksPerUs};
  look_in_vain(idle, world);
  EXPECT_EQ(world.looks, 12);  // in 60 us, each after its rest and a pause
  EXPECT_TRUE(world.pauses >= 12 * 50);
}

TEST(IdlePolicy, LooksAllTheTimeInHaste) {
  IdlePolicy idle(kTicksPerUs);
  World world{.in_haste = true, .rest = 5 * kTicksPerUs};
  look_in_vain(idle, world);
  EXPECT_EQ(world.looks, world.pauses);
  // 600 pauses of 0.1 us, up to the end of a round of 16.
  EXPECT_EQ(world.looks, 608);
}

TEST(IdlePolicy, EndsItsRestWhenSomebodyIsInHaste) {
  IdlePolicy idle(kTicksPerUs);
  World world{.rest = 1000 * kTicksPerUs};
  world.work_at = world.haste_at = world.now + 3 * kTicksPerUs;
  uint64_t gap = 0;
  EXPECT_TRUE(idle.look(world, gap));
  EXPECT_EQ(gap, 3 * kTicksPerUs);
}

TEST(IdlePolicy, IsInHasteForSixteenTasksAfterTheLastWanted) {
  EXPECT_TRUE(IdlePolicy::awaited(100, 50));
  EXPECT_TRUE(IdlePolicy::awaited(100, 115));
  EXPECT_TRUE(!IdlePolicy::awaited(100, 116));
}

TEST(IdlePolicy, RestsTwiceAsLongForFourTimesTheTasks) {
  EXPECT_EQ(IdlePolicy::rest_ns(1000, 10), 3'000);
  const std::map<uint64_t, int> rests = {{0, 3},    {31, 3},        {32, 6},
                                         {127, 6},  {128, 12},      {511, 12},
                                         {512, 24}, {1'000'000, 24}};
  for (const auto& [tasks, us] : rests)
    EXPECT_EQ(IdlePolicy::rest_ns(1000, 1000 + tasks), us * 1000);
}

WaitPatience after(int waits, uint64_t ns) {
  WaitPatience patience;
  for (int i = 0; i < waits; ++i) patience.waited(ns);
  return patience;
}

TEST(WaitPatience, NobodySpinsOnBeforeThereWereShortWaits) {
  EXPECT_EQ(WaitPatience().spin_ns(), 0u);
  EXPECT_EQ(after(3, 50'000).spin_ns(), 0u);
}

TEST(WaitPatience, ShortWaitsAreOutlasted) {
  const uint64_t spin = after(40, 100'000).spin_ns();
  EXPECT_TRUE(spin > 150'000 && spin < 250'000);
}

TEST(WaitPatience, LongWaitsSleep) {
  EXPECT_EQ(after(40, 200'000).spin_ns(), 0u);
  WaitPatience patience = after(40, 140'000);
  patience.waited(1'000'000'000);
  EXPECT_EQ(patience.spin_ns(), 0u);
  // One of them is soon forgotten.
  for (int i = 0; i < 24; ++i) patience.waited(100'000);
  EXPECT_TRUE(patience.spin_ns() > 0);
}

}  // namespace
}  // namespace npu
