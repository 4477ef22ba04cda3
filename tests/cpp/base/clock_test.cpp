#include "csrc/base/clock.h"

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

}  // namespace
}  // namespace npu
