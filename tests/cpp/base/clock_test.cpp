#include "csrc/base/clock.h"

#include "csrc/base/tick_clock.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

TEST(Clock, NeverGoesBackwards) {
  uint64_t last_ns = now_ns(), last_ticks = ticks();
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t ns = now_ns(), t = ticks();
    EXPECT_TRUE(ns >= last_ns);
    EXPECT_TRUE(t >= last_ticks);
    last_ns = ns;
    last_ticks = t;
  }
}

TEST(Clock, HasOnePositiveRate) {
  const double rate = ns_per_tick();
  EXPECT_TRUE(rate > 0.01 && rate < 1000);
  EXPECT_EQ(rate, ns_per_tick());
}

// The test lasts longer than the millisecond for which TickClock only counts
// ticks.
TEST(Clock, CountedOnByTicksIsNotAheadAndDoesNotGoBack) {
  TickClock clock;
  const uint64_t start = now_ns();
  for (uint64_t now = start, last = start; now < start + 5'000'000;) {
    const uint64_t told = clock.ns(ticks());
    now = now_ns();
    EXPECT_TRUE(told < now + 1'000);
    EXPECT_TRUE(told + 1'000 > last);
    last = told;
  }
}

TEST(Ticks, ThatWereReadOutOfOrderAreNoTimeApart) {
  EXPECT_EQ(ticks_between(3, 5), 2);
  EXPECT_EQ(ticks_between(5, 3), 0);
  EXPECT_EQ(ticks_between(UINT64_MAX - 1, 3), 5);
}

}  // namespace
}  // namespace npu
