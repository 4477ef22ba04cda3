#include "csrc/stats/layout.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

TEST(TimeHistogram, QuartersEachPowerOfTwo) {
  // Value, bucket: from the definition, by hand.
  for (auto [value, bucket] : {std::pair{0, 0},
                               {3, 3},
                               {4, 4},
                               {7, 7},
                               {8, 8},
                               {9, 8},
                               {10, 9},
                               {15, 11},
                               {16, 12},
                               {19, 12},
                               {20, 13},
                               {1000, 35},
                               {1024, 36}})
    EXPECT_EQ(TimeHistogram::index(uint64_t(value)), bucket);
}

TEST(TimeHistogram, HasBucketsThatRiseWithoutGaps) {
  int last = 0;
  for (uint64_t value = 0; value < 100'000; ++value) {
    const int b = TimeHistogram::index(value);
    EXPECT_TRUE(b == last || b == last + 1);
    last = b;
  }
}

TEST(TimeHistogram, PutsWhateverIsTooLargeIntoTheLastBucket) {
  EXPECT_EQ(TimeHistogram::index(~uint64_t{0}), kTimeBuckets - 1);
  EXPECT_EQ(TimeHistogram::index((uint64_t{1} << 40) - 1), kTimeBuckets - 1);
}

TEST(RunningTime, ShowsAReaderOneSumThatNeverFalls) {
  RunningTime time{};
  const auto at = [&time](uint64_t now) {
    const uint64_t word = time.word.load();
    return word & RunningTime::kRunning ? now - (word & ~RunningTime::kRunning)
                                        : word;
  };
  time.start(1000);
  EXPECT_EQ(at(1000), 0);
  EXPECT_EQ(at(1500), 500);
  time.stop(1500);
  EXPECT_EQ(at(9000), 500);
  time.add(7);
  time.start(9000);
  EXPECT_EQ(at(9000), 507);
  time.stop(9010);
  EXPECT_EQ(at(99999), 517);
}

TEST(CountedWait, IsVisibleWhileItLastsAndCountedWhenItEnds) {
  Counter count{0}, ns{0}, open{0}, from{0};
  CountedWait first(count, ns, open, from, 100);
  CountedWait second(count, ns, open, from, 300);
  EXPECT_EQ(count.load(), 2);
  EXPECT_EQ(open.load(), 2);
  // At 400: 300 and 100 so far.
  EXPECT_EQ(open.load() * 400 - from.load(), 400);
  first.end(400);
  EXPECT_EQ(ns.load(), 300);
  EXPECT_EQ(open.load() * 450 - from.load(), 150);
  second.end(450);
  EXPECT_EQ(ns.load(), 450);
  EXPECT_EQ(from.load(), 0);
}

}  // namespace
}  // namespace npu
