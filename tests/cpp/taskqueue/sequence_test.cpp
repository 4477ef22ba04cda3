#include "csrc/taskqueue/sequence.h"

#include <thread>
#include <vector>

#include "tests/cpp/check.h"

namespace npu {
namespace {

constexpr uint64_t kForEver = 0;

TEST(Sequence, SaysWhatItHasReached) {
  Sequence s;
  EXPECT_TRUE(s.reached(0));
  EXPECT_TRUE(!s.reached(1));
  s.advance_to(3);
  EXPECT_TRUE(s.reached(3));
  EXPECT_TRUE(!s.reached(4));
  EXPECT_EQ(s.value(), 3);
}

TEST(Sequence, GivesUpSpinningAndSleepingInTime) {
  Sequence s;
  EXPECT_TRUE(!s.spin(1, 1000));
  EXPECT_TRUE(!s.sleep(1, 1000));
  s.advance_to(1);
  EXPECT_TRUE(s.spin(1, 0));
  EXPECT_TRUE(s.sleep(1, kForEver));
}

TEST(Sequence, ShowsASleeperWhatWasDoneBeforeTheAdvance) {
  Sequence s;
  int plain = 0;

  std::thread advancer([&] {
    plain = 42;
    s.advance_to(1);
  });
  while (!s.sleep(1, kForEver)) {
  }

  EXPECT_EQ(plain, 42);
  advancer.join();
}

TEST(Sequence, WakesEverySleeperAtItsOwnTarget) {
  constexpr uint64_t kSleepers = 6;
  Sequence s;
  std::atomic<uint64_t> done{0};
  std::vector<std::thread> sleepers;
  for (uint64_t target = 1; target <= kSleepers; ++target)
    sleepers.emplace_back([&, target] {
      while (!s.sleep(target, kForEver)) {
      }
      EXPECT_TRUE(s.value() >= target);
      done.fetch_add(1);
      done.notify_all();
    });

  for (uint64_t n = 1; n <= kSleepers; ++n) {
    s.advance_to(n);
    for (uint64_t seen; (seen = done.load()) < n;) done.wait(seen);
    EXPECT_EQ(done.load(), n);
  }

  for (auto& thread : sleepers) thread.join();
}

// One thread advances as soon as the other is about to sleep for the next
// number: a lost wake-up hangs here.
TEST(Sequence, LosesNoWakeUpBetweenTwoThreadsThatAlternate) {
  constexpr uint64_t kRounds = 10'000;
  Sequence ping, pong;
  std::thread other([&] {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      while (!ping.sleep(i, kForEver)) {
      }
      pong.advance_to(i);
    }
  });

  for (uint64_t i = 1; i <= kRounds; ++i) {
    ping.advance_to(i);
    while (!pong.sleep(i, kForEver)) {
    }
  }

  other.join();
}

TEST(Sequence, LosesNoWakeUpAmongSleepersWithDifferentStrides) {
  constexpr uint64_t kLast = 30'000;
  Sequence s;
  std::vector<std::thread> sleepers;
  for (uint64_t stride : {1, 7, 64})
    sleepers.emplace_back([&s, stride] {
      for (uint64_t target = stride; target <= kLast; target += stride)
        while (!s.sleep(target, kForEver)) {
        }
    });

  for (uint64_t n = 1; n <= kLast; ++n) s.advance_to(n);

  for (auto& thread : sleepers) thread.join();
  EXPECT_EQ(s.value(), kLast);
}

TEST(Sequence, WakesSleepersWhereItsNumbersOverflow) {
  for (const uint64_t edge : {uint64_t{1} << 32, uint64_t{1} << 63}) {
    Sequence sequence;
    sequence.advance_to(edge - 2);
    std::thread sleeping([&] {
      while (!sequence.sleep(edge + 1, 0)) {
      }
    });
    for (uint64_t n = edge - 1; n <= edge + 1; ++n) sequence.advance_to(n);
    sleeping.join();
    EXPECT_TRUE(sequence.reached(edge + 1));
    EXPECT_TRUE(!sequence.reached(edge + 2));
  }
}

}  // namespace
}  // namespace npu
