// How long a graph takes on several cores.
#include "csrc/graph/makespan.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/cpp/check.h"

namespace npu {
namespace {

using Times = std::vector<uint64_t>;

constexpr uint64_t kLong = 1'000'000;

TEST(Makespan, AChainTakesTheSumOnAnyNumberOfCores) {
  const Edges chain{{1}, {2}, {}};
  for (const int cores : {1, 2, 64})
    EXPECT_EQ(makespan(chain, {1000, 2000, 3000}, cores), 6000);
}
TEST(Makespan, OneCoreTakesTheSum) {
  EXPECT_EQ(makespan({{1, 2}, {3}, {3}, {}}, {1, 2, 3, 4}, 1), 10);
}
TEST(Makespan, IndependentNodesAreDivided) {
  const Edges four(4);
  EXPECT_EQ(makespan(four, {kLong, kLong, kLong, kLong}, 2), 2 * kLong);
  EXPECT_EQ(makespan(four, {kLong, kLong, kLong, kLong}, 8), kLong);
}
// The long path is begun first.
TEST(Makespan, TheMostUrgentNodeIsTakenFirst) {
  const Edges edges{{}, {}, {3}, {}};
  EXPECT_TRUE(makespan(edges, {kLong, kLong, kLong, kLong}, 2) <=
              2 * kLong + kHandOverNs);
}
TEST(Makespan, ANodeOnAnotherCoreIsHandedOver) {
  const Edges fork{{1, 2}, {}, {}};
  EXPECT_EQ(makespan(fork, {kLong, kLong, kLong}, 2), 2 * kLong + kHandOverNs);
}
TEST(Makespan, UrgencyIsTheLongestPathBehind) {
  const Edges diamond{{1, 2}, {3}, {3}, {}};
  EXPECT_TRUE(urgency(diamond, {1, 5, 2, 1}) == (Times{7, 6, 3, 1}));
  // What comes later is less urgent, also where nodes take no time.
  EXPECT_TRUE(urgency({{1}, {}}, {0, 0}) == (Times{2, 1}));
}
// Graham's bounds for any such schedule: neither the longest path nor an equal
// share of the work can be beaten, and it takes no longer than both together.
TEST(Makespan, LiesBetweenTheBoundsOfListScheduling) {
  std::mt19937 random(check::seed());
  for (int trial = 0; trial < 200; ++trial) {
    const size_t n = 1 + random() % 60;
    Edges edges(n);
    Times ns(n);
    for (size_t i = 0; i < n; ++i) {
      ns[i] = 1 + random() % 1000;
      for (size_t j = i + 1; j < n; ++j)
        if (random() % 8 == 0) edges[i].push_back(uint32_t(j));
    }
    const Times paths = urgency(edges, ns);
    const uint64_t path = *std::ranges::max_element(paths);
    const uint64_t work = std::accumulate(ns.begin(), ns.end(), uint64_t{0});
    for (const int cores : {1, 2, 3, 8}) {
      const uint64_t found = makespan(edges, ns, cores);
      EXPECT_TRUE(found >= path && found >= work / uint64_t(cores));
      EXPECT_TRUE(found <= work / uint64_t(cores) + path + n * kHandOverNs);
    }
  }
}

}  // namespace
}  // namespace npu
