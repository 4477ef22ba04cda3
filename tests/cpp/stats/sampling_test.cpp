// Which items are measured: the same share of them whatever the stride at which
// a program repeats itself.
#include <vector>

#include "csrc/stats/layout.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

TEST(Sampling, MeasuresEachTaskOfARepeatedStepEquallyOften) {
  for (uint64_t tasks = 1; tasks <= 64; ++tasks) {
    const uint64_t steps = 16'000;
    std::vector<uint64_t> measured(tasks);
    for (uint64_t n = 0; n < tasks * steps; ++n)
      measured[n % tasks] += is_sampled(n);
    for (const uint64_t count : measured) {
      EXPECT_TRUE(count * kSamplePeriod > steps * 97 / 100);
      EXPECT_TRUE(count * kSamplePeriod < steps * 103 / 100);
    }
  }
}

TEST(Sampling, HasNoLongGapsAndStartsWithTheFirst) {
  uint64_t last = 0;
  for (uint64_t n = 0; n < 1'000'000; ++n) {
    if (!is_sampled(n)) continue;
    EXPECT_TRUE(n - last <= 34);
    last = n;
  }
  EXPECT_TRUE(is_sampled(0));
  EXPECT_TRUE(last > 999'000);
}

TEST(Sampling, GoesOnWhereTheNumberNoLongerFitsItsHash) {
  const uint64_t far = (uint64_t{1} << 40) + 12'345;
  uint64_t measured = 0;
  for (uint64_t n = 0; n < 160'000; ++n) measured += is_sampled(far + n);

  EXPECT_TRUE(measured > 9'700 && measured < 10'300);
}

TEST(Sampling, TakesDepthsOfAFourthOfTheMeasuredTasks) {
  uint64_t depths = 0, measured = 0;
  for (uint64_t n = 0; n < 640'000; ++n) {
    depths += is_sampled(n, kDepthPeriod);
    measured += is_sampled(n);
    // Only measured tasks come to where depths are taken.
    EXPECT_TRUE(is_sampled(n) || !is_sampled(n, kDepthPeriod));
  }
  EXPECT_TRUE(depths > 9'700 && depths < 10'300);
  EXPECT_TRUE(measured > 38'800 && measured < 41'200);
}

}  // namespace
}  // namespace npu
