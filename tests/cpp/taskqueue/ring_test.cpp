#include "csrc/taskqueue/ring.h"

#include <memory>
#include <thread>
#include <vector>

#include "tests/cpp/check.h"

namespace npu {
namespace {

struct Small {
  explicit Small(uint64_t capacity)
      : slots(new Ring<int>::Slot[capacity]),
        ring(slots.get(), capacity, control) {}
  bool push(int value) {
    const uint64_t p = ring.claim();
    if (p == kRingFull) return false;
    ring.value(p) = value;
    ring.publish(p);
    return true;
  }
  std::unique_ptr<Ring<int>::Slot[]> slots;
  RingControl<> control;
  Ring<int> ring;
};

TEST(Ring, ReturnsValuesInTheOrderOfTheirClaims) {
  Small s(4);
  s.push(1);
  s.push(2);

  EXPECT_EQ(*s.ring.front(), 1);
  s.ring.pop();
  EXPECT_EQ(*s.ring.front(), 2);
  s.ring.pop();
  EXPECT_TRUE(s.ring.front() == nullptr);
}

TEST(Ring, RefusesAClaimWhenFullAndAcceptsOneAfterAFlushedPop) {
  Small s(2);
  EXPECT_TRUE(s.push(1));
  EXPECT_TRUE(s.push(2));
  EXPECT_TRUE(!s.push(3));

  s.ring.pop();
  s.ring.flush();

  EXPECT_TRUE(s.push(3));
  EXPECT_TRUE(!s.push(4));
  EXPECT_EQ(*s.ring.front(), 2);
}

TEST(Ring, AnnouncesFreedSlotsOncePerEighthOfTheRing) {
  Small s(32);
  for (int i = 0; i < 32; ++i) s.push(i);

  for (int i = 0; i < 3; ++i) s.ring.pop();
  EXPECT_TRUE(!s.push(32));
  s.ring.pop();
  EXPECT_TRUE(s.push(32));
}

TEST(Ring, HidesAPublishedValueBehindAnUnpublishedClaim) {
  Small s(4);
  const uint64_t first = s.ring.claim();
  s.push(2);
  EXPECT_TRUE(s.ring.front() == nullptr);

  s.ring.value(first) = 1;
  s.ring.publish(first);

  EXPECT_EQ(*s.ring.front(), 1);
}

TEST(Ring, DoesNotTakeAValueOfAnEarlierLapForANewOne) {
  Small s(2);
  for (int lap = 0; lap < 1000; ++lap) {
    s.push(lap);
    EXPECT_EQ(*s.ring.front(), lap);
    EXPECT_EQ(s.ring.front_position(), lap);
    s.ring.pop();
    EXPECT_TRUE(s.ring.front() == nullptr);
    s.ring.flush();
  }
}

void hammer(uint64_t capacity, int producers, int each) {
  Small s(capacity);
  std::vector<std::thread> threads;
  for (int id = 0; id < producers; ++id)
    threads.emplace_back([&s, id, each] {
      for (int i = 0; i < each; ++i)
        while (!s.push(id * each + i)) std::this_thread::yield();
    });
  std::vector<int> next(size_t(producers), 0);

  for (int seen = 0; seen < producers * each;) {
    const int* value = s.ring.front();
    if (!value) {
      s.ring.flush();
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(*value % each, next[size_t(*value / each)]++);
    s.ring.pop();
    ++seen;
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(s.ring.front() == nullptr);
}

TEST(Ring, KeepsOneProducersOrder) { hammer(64, 1, 100'000); }
TEST(Ring, KeepsEachOfSeveralProducersOrder) { hammer(64, 3, 30'000); }
TEST(Ring, KeepsOrderWhenItIsAlwaysFull) { hammer(2, 3, 10'000); }

}  // namespace
}  // namespace npu
