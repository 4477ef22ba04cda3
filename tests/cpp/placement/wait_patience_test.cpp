// How long host waits spin on, from the waits before them.
#include "csrc/placement/wait_patience.h"

#include "tests/cpp/check.h"

namespace npu {
namespace {

constexpr uint64_t kUs = 1'000;

WaitPatience after(int waits, uint64_t ns) {
  WaitPatience patience;
  for (int i = 0; i < waits; ++i) patience.waited(ns);
  return patience;
}

TEST(WaitPatience, NobodySpinsOnBeforeThereWereShortWaits) {
  EXPECT_EQ(WaitPatience().spin_ns(), 0u);
  EXPECT_EQ(after(3, 50 * kUs).spin_ns(), 0u);
}

TEST(WaitPatience, ShortWaitsAreOutlasted) {
  const uint64_t spin = after(40, 100 * kUs).spin_ns();
  EXPECT_TRUE(spin > 150 * kUs && spin < 250 * kUs);
}

TEST(WaitPatience, LongWaitsSleep) {
  EXPECT_EQ(after(40, 200 * kUs).spin_ns(), 0u);
  WaitPatience patience = after(40, 140 * kUs);
  patience.waited(1'000'000 * kUs);
  EXPECT_EQ(patience.spin_ns(), 0u);
  // One of them is soon forgotten.
  for (int i = 0; i < 24; ++i) patience.waited(100 * kUs);
  EXPECT_TRUE(patience.spin_ns() > 0);
}

}  // namespace
}  // namespace npu
