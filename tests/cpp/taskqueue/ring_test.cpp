#include "csrc/taskqueue/ring.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cpp/check.h"

namespace npu {
namespace {

struct Slot {
  std::atomic<uint32_t> lap{0};
  int value = 0;
};

// A ring through which `first` positions seem to have passed.
struct Small {
  explicit Small(uint64_t capacity, uint64_t first = 0)
      : slots(new Slot[capacity]), ring(slots.get(), capacity, shown, first) {
    for (uint64_t p = first - capacity; p != first; ++p)
      slots[p % capacity].lap = uint32_t(p / capacity + 1);
  }
  bool push(int value) {
    const uint64_t p = ring.claim();
    if (p == kRingFull) return false;
    ring.slot(p).value = value;
    ring.publish(p);
    return true;
  }
  std::unique_ptr<Slot[]> slots;
  std::atomic<uint64_t> shown{0};
  Ring<Slot> ring;
};

TEST(Ring, ReturnsValuesInTheOrderOfTheirClaims) {
  Small s(4);
  s.push(1);
  s.push(2);

  EXPECT_EQ(s.ring.front()->value, 1);
  s.ring.retire();
  EXPECT_EQ(s.ring.front()->value, 2);
  s.ring.retire();
  EXPECT_TRUE(s.ring.front() == nullptr);
}

TEST(Ring, RefusesAClaimWhenFullAndAcceptsOneWhenASlotIsGivenBack) {
  Small s(2);
  EXPECT_TRUE(s.push(1));
  EXPECT_TRUE(s.push(2));
  EXPECT_TRUE(!s.push(3));

  s.ring.retire();

  EXPECT_TRUE(s.push(3));
  EXPECT_TRUE(!s.push(4));
  EXPECT_EQ(s.ring.front()->value, 2);
}

TEST(Ring, ShowsHowManyPositionsWereClaimed) {
  Small s(4);
  s.push(1);
  EXPECT_EQ(s.shown.load(), 1);
  // A second thread ends the sole use of the first.
  std::thread([&] { s.push(2); }).join();
  EXPECT_EQ(s.shown.load(), 2);
  s.push(3);
  EXPECT_EQ(s.shown.load(), 3);
}

TEST(Ring, GoesOnWhateverIsWrittenToWhatItShows) {
  Small s(2);
  for (int lap = 0; lap < 10; ++lap) {
    for (const uint64_t wrong :
         {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 63}) {
      s.shown = wrong;
      EXPECT_TRUE(s.push(lap));
      EXPECT_EQ(s.ring.front()->value, lap);
      s.ring.retire();
      EXPECT_TRUE(s.ring.front() == nullptr);
    }
  }
}

TEST(Ring, HidesAPublishedValueBehindAnUnpublishedClaim) {
  Small s(4);
  const uint64_t first = s.ring.claim();
  s.push(2);
  EXPECT_TRUE(s.ring.front() == nullptr);

  s.ring.slot(first).value = 1;
  s.ring.publish(first);

  EXPECT_EQ(s.ring.front()->value, 1);
}

TEST(Ring, DoesNotTakeAValueOfAnEarlierLapForANewOne) {
  Small s(2);
  for (int lap = 0; lap < 1000; ++lap) {
    s.push(lap);
    EXPECT_EQ(s.ring.front()->value, lap);
    EXPECT_EQ(s.ring.front_position(), lap);
    s.ring.retire();
    EXPECT_TRUE(s.ring.front() == nullptr);
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
    const Slot* front = s.ring.front();
    if (!front) {
      std::this_thread::yield();
      continue;
    }
    const int value = front->value;
    EXPECT_EQ(value % each, next[size_t(value / each)]++);
    s.ring.retire();
    ++seen;
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(s.ring.front() == nullptr);
}

TEST(Ring, KeepsOneProducersOrder) { hammer(64, 1, 100'000); }
TEST(Ring, KeepsEachOfSeveralProducersOrder) { hammer(64, 3, 30'000); }
TEST(Ring, KeepsOrderWhenItIsAlwaysFull) { hammer(2, 3, 10'000); }

// At positions where 32 bits of a position, those of a lap, or its sign
// overflow.
TEST(Ring, GoesOnWherePositionsAndLapsOverflow) {
  for (const uint64_t capacity : {2, 8, 64}) {
    for (const uint64_t edge :
         {uint64_t{1} << 32, capacity << 32, uint64_t{1} << 63}) {
      for (uint64_t before = 0; before <= 2 * capacity; ++before) {
        Small late(capacity, edge - before);
        EXPECT_TRUE(late.ring.front() == nullptr);
        int in = 0, out = 0;
        while (out < 200) {
          while (late.push(in)) ++in;
          EXPECT_EQ(in - out, capacity);
          while (Slot* slot = late.ring.front()) {
            EXPECT_EQ(slot->value, out++);
            late.ring.retire();
          }
        }
        EXPECT_EQ(late.ring.front_position(), edge - before + uint64_t(out));
      }
    }
  }
}

TEST(Ring, LosesNothingOfTwoThreadsAcrossAnOverflow) {
  constexpr uint64_t kCapacity = 8, kEach = 20'000;
  for (const uint64_t edge : {uint64_t{1} << 32, kCapacity << 32}) {
    Small late(kCapacity, edge - kEach);
    const auto produce = [&] {
      for (uint64_t i = 0; i < kEach; ++i)
        while (!late.push(1)) std::this_thread::yield();
    };
    std::thread first(produce), second(produce);
    uint64_t sum = 0;
    while (sum < 2 * kEach) {
      if (Slot* slot = late.ring.front()) {
        sum += uint64_t(slot->value);
        late.ring.retire();
      } else {
        std::this_thread::yield();
      }
    }
    first.join();
    second.join();
    EXPECT_EQ(late.ring.front_position(), edge + kEach);
  }
}

}  // namespace
}  // namespace npu
