// What queues are made of: the ring, its arena, sequences, locks, parking. What
// becomes of them among threads is explored in tests/cpp/model, and under
// ThreadSanitizer seen in the tests of streams, which use all of them.
#include "csrc/taskqueue/arena.h"
#include "csrc/taskqueue/parking.h"
#include "csrc/taskqueue/ring.h"
#include "csrc/taskqueue/sequence.h"
#include "csrc/taskqueue/sole_lock.h"
#include "csrc/taskqueue/task_wait.h"
#include "tests/cpp/system.h"

namespace npu {
namespace {

TEST(Arena, GivesAlignedMemoryOfEverySize) {
  Arena arena;
  for (uint32_t n : {1u, 2u, 3u, 4u, 5u, 36u, 64u, 65u, 4096u, 65'535u}) {
    uint64_t* words = arena.take(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(words) % 16, 0);
    for (uint32_t i = 0; i < n; ++i) words[i] = i;  // ASan checks the size
    arena.give(words);
  }
}

TEST(Arena, GivesTheChunkOfAClassThatWasGivenLast) {
  Arena arena;
  uint64_t* const a = arena.take(40);
  uint64_t* const b = arena.take(64);
  EXPECT_TRUE(a != b);
  arena.give(a);
  arena.give(b);
  EXPECT_TRUE(arena.take(64) == b);
  EXPECT_TRUE(arena.take(40) == a);
  arena.give(a);
  arena.give(b);
}

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

TEST(Ring, HasValuesInTheOrderOfTheirClaimsUntilItIsFull) {
  Small s(2);
  EXPECT_TRUE(s.push(1) && s.push(2) && !s.push(3));
  EXPECT_EQ(s.ring.front()->value, 1);
  s.ring.retire();
  EXPECT_TRUE(s.push(3) && !s.push(4));
  for (const int value : {2, 3}) {
    EXPECT_EQ(s.ring.front()->value, value);
    s.ring.retire();
  }
  EXPECT_TRUE(s.ring.front() == nullptr);
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

constexpr uint64_t kForEver = 0;

TEST(Sequence, GivesUpSpinningAndSleepingInTime) {
  Sequence s;
  const auto due = [&] { return s.reached(1); };
  EXPECT_TRUE(s.reached(0) && !s.reached(1));
  EXPECT_TRUE(!spin_until(1000, due));
  EXPECT_TRUE(!s.sleep(1, 1000));
  s.advance_to(1);
  EXPECT_TRUE(spin_until(0, due));
  EXPECT_TRUE(s.sleep(1, kForEver));
  EXPECT_TRUE(s.value() == 1 && !s.reached(2));
}

// Sleepers with different strides, also where the numbers overflow.
TEST(Sequence, WakesEachSleeperAtItsTarget) {
  constexpr uint64_t kLast = 30'000;
  for (const uint64_t first : {uint64_t{0}, (uint64_t{1} << 32) - kLast / 2,
                               (uint64_t{1} << 63) - kLast / 2}) {
    Sequence s;
    s.advance_to(first);
    std::vector<std::thread> sleepers;
    for (uint64_t stride : {1, 7, 64})
      sleepers.emplace_back([&s, first, stride] {
        for (uint64_t n = stride; n <= kLast; n += stride)
          while (!s.sleep(first + n, kForEver)) {
          }
      });
    for (uint64_t n = 1; n <= kLast; ++n) s.advance_to(first + n);
    for (auto& thread : sleepers) thread.join();
    EXPECT_TRUE(s.reached(first + kLast) && !s.reached(first + kLast + 1));
  }
}

// Of whatever priority it is, it leaves its CPU to the holder.
TEST(SleepLock, IsWaitedForAsleep) {
  SleepLock lock;
  std::atomic<pid_t> waiter{0};
  lock.lock();
  std::thread thread([&] {
    waiter = gettid();
    std::lock_guard hold(lock);
  });
  while (!waiter) sched_yield();
  while (state_of(uint64_t(waiter)) != 'S') sched_yield();
  lock.unlock();
  thread.join();
}

// Sleeps again and again.
class Sleeper {
 public:
  Sleeper()
      : thread_([this] {
          tid_ = gettid();
          while (!ends_) parking_.park([this] { return ends_.load(); });
        }) {}
  ~Sleeper() {
    ends_ = true;
    parking_.wake_if_parked();
    thread_.join();
  }

  Parking& parking() { return parking_; }
  void wait_until_asleep() {
    while (!parking_.needs_wake()) sched_yield();
  }
  // While it is asleep.
  bool may_run_on(int cpu) const {
    cpu_set_t cpus;
    EXPECT_EQ(sched_getaffinity(tid_, sizeof cpus, &cpus), 0);
    return CPU_ISSET(cpu, &cpus);
  }

 private:
  Parking parking_;
  std::atomic<pid_t> tid_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

template <typename Work>
void on_cpu(int cpu, Work work) {
  std::thread([&] {
    const cpu_set_t one = cpus({cpu});
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    work();
  }).join();
}

// Else a device's thread that reports from the other core drives the launcher
// onto the one of its producer.
TEST(Parking, KeepsOffTheCpuOfItsProducerWhoeverElseWakesIt) {
  const cpu_set_t all = allowed_cpus();
  if (CPU_COUNT(&all) < 2) return;
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  int second = first + 1;
  while (!CPU_ISSET(second, &all)) ++second;

  Sleeper sleeper;
  sleeper.wait_until_asleep();
  on_cpu(first, [&] { EXPECT_TRUE(sleeper.parking().wake()); });
  sleeper.wait_until_asleep();
  on_cpu(second, [&] { sleeper.parking().wake_if_parked(); });
  sleeper.wait_until_asleep();
  EXPECT_TRUE(!sleeper.may_run_on(first));
  EXPECT_TRUE(sleeper.may_run_on(second));
}

}  // namespace
}  // namespace npu
