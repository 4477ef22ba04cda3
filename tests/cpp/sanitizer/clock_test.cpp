#include "csrc/sanitizer/clock.h"

#include "tests/cpp/check.h"

namespace npu {
namespace {

VectorClock at(size_t stream, uint64_t number) {
  VectorClock clock;
  clock.raise(stream, number);
  return clock;
}

TEST(Clock, OnlyGrows) {
  VectorClock clock = at(2, 7);
  clock.raise(2, 5);
  EXPECT_EQ(clock[2], 7);
  EXPECT_EQ(clock[0], 0);
  EXPECT_TRUE(clock.join(at(4, 1), 9));
  EXPECT_TRUE(!clock.join(at(2, 7), 9));
  EXPECT_TRUE(!clock.join(at(0, 3), 0));  // its own number is not joined
  EXPECT_EQ(clock[0], 0);
  EXPECT_EQ(clock[4], 1);
}

TEST(ClockHistory, KnowsWhatWasKnownAtEachMoment) {
  ClockHistory history;
  history.join(10, at(1, 5), 0);
  history.join(20, at(1, 9), 0);
  history.join(20, at(3, 2), 0);

  EXPECT_EQ(history.before(0)[1], 0);
  EXPECT_EQ(history.before(10)[1], 0);
  EXPECT_EQ(history.before(11)[1], 5);
  EXPECT_EQ(history.before(20)[1], 5);
  EXPECT_EQ(history.before(21)[1], 9);
  EXPECT_EQ(history.before(21)[3], 2);
  EXPECT_EQ(history.now()[1], 9);
}

TEST(ClockHistory, GivesNoMomentAwayForOneThatTaughtNothing) {
  ClockHistory history;
  history.join(10, at(1, 5), 0);
  for (uint64_t i = 20; i < 2000; ++i) history.join(i, at(1, 5), 0);
  EXPECT_EQ(history.before(10)[1], 0);
  EXPECT_EQ(history.before(11)[1], 5);
}

// Of a long history the oldest moments are merged into the oldest one that is
// kept.
TEST(ClockHistory, KeepsTheNewest) {
  ClockHistory history;
  for (uint64_t i = 1; i <= 10'000; ++i) history.join(10 * i, at(1, i), 0);
  EXPECT_EQ(history.now()[1], 10'000);
  EXPECT_EQ(history.before(10 * 9'999 + 1)[1], 9'999);
  EXPECT_EQ(history.before(10 * 9'998 + 1)[1], 9'998);
  EXPECT_EQ(history.before(10 * 9'745 + 1)[1], 9'745);  // of 256
  EXPECT_EQ(history.before(11)[1], 9'745);
}

}  // namespace
}  // namespace npu
