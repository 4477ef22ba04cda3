// When replays run in parallel, on a made-up machine.
#include "csrc/graph/parallel_policy.h"

#include "tests/cpp/check.h"

namespace npu {
namespace {

using How = ParallelPolicy::How;
constexpr auto kTimedReplays = ParallelPolicy::kTimedReplays;

// Replays that take a fixed time of each kind.
struct World {
  ParallelPolicy policy{};
  uint64_t in_turn = 100'000, parallel = 60'000;
  uint32_t replays[3] = {};

  void replay(uint32_t n = 1) {
    for (uint32_t i = 0; i < n; ++i) {
      const How how = policy.next();
      ++replays[int(how)];
      if (policy.took(how == How::kParallel ? parallel : in_turn))
        policy.predicted(in_turn, parallel);
    }
  }
  uint32_t share_in_parallel(uint32_t n) {
    const uint32_t before = replays[int(How::kParallel)];
    replay(n);
    return (replays[int(How::kParallel)] - before) * 100 / n;
  }
};

TEST(ParallelPolicy, TheFirstReplaysAreTimed) {
  World world;
  world.replay(kTimedReplays);
  EXPECT_EQ(world.replays[int(How::kTimed)], kTimedReplays);
  world.replay(1000);
  EXPECT_EQ(world.replays[int(How::kTimed)], kTimedReplays);
}
TEST(ParallelPolicy, WhatIsFasterIsChosen) {
  World world;
  world.replay(100);
  EXPECT_TRUE(world.share_in_parallel(10'000) > 97);
}
TEST(ParallelPolicy, WhatWasPredictedAndDoesNotComeTrueIsGivenUp) {
  World world;
  world.replay(kTimedReplays);
  world.parallel = 120'000;
  world.replay(100);
  EXPECT_TRUE(world.share_in_parallel(10'000) < 3);
}
// A gain of less than a 33rd is none.
TEST(ParallelPolicy, WhatIsEquallyFastRunsInTurn) {
  World world;
  world.replay(kTimedReplays);
  world.parallel = 98'000;
  world.replay(100);
  EXPECT_TRUE(world.share_in_parallel(10'000) < 3);
}
TEST(ParallelPolicy, WhatCannotBeFasterIsNeverTried) {
  World world;
  world.parallel = 99'000;
  world.replay(10'000);
  EXPECT_EQ(world.replays[int(How::kParallel)], 0);
}
TEST(ParallelPolicy, AShortGraphIsNeverTried) {
  World world;
  world.in_turn = 20'000;
  world.parallel = 10'000;
  world.replay(10'000);
  EXPECT_EQ(world.replays[int(How::kParallel)], 0);
}
// A neighbour comes and takes a core, and goes.
TEST(ParallelPolicy, FollowsTheMachine) {
  World world;
  world.replay(200);
  world.parallel = 400'000;
  world.replay(2 * ParallelPolicy::kMostStay);
  EXPECT_TRUE(world.share_in_parallel(10'000) < 3);
  world.parallel = 60'000;
  world.replay(2 * ParallelPolicy::kMostStay);
  EXPECT_TRUE(world.share_in_parallel(10'000) > 97);
}
// One replay that is late for another reason does not count.
TEST(ParallelPolicy, IgnoresASingleLateReplay) {
  World world;
  world.replay(kTimedReplays);
  world.parallel = 5'000'000;
  world.replay(1);
  world.parallel = 60'000;
  world.replay(100);
  EXPECT_TRUE(world.share_in_parallel(1'000) > 90);
}

}  // namespace
}  // namespace npu
