// Clocks, futexes, the environment, variables of a thread.
#include <limits.h>
#include <pthread.h>

#include <atomic>
#include <thread>

#include "csrc/base/align.h"
#include "csrc/base/clock.h"
#include "csrc/base/env.h"
#include "csrc/base/futex.h"
#include "csrc/base/per_thread.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

TEST(Align, RoundsUpToAMultiple) {
  for (auto [n, rounded] : {std::pair{0, 0}, {1, 512}, {512, 512}, {513, 1024}})
    EXPECT_EQ(round_up(size_t(n), 512), rounded);
}

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

constexpr char kName[] = "NPU_TEST_VARIABLE";

void set(const char* value) { setenv(kName, value, 1); }

TEST(Env, UnsetAndEmptyMeanTheFallback) {
  for (const bool empty : {false, true}) {
    empty ? set("") : void(unsetenv(kName));
    EXPECT_EQ(env_string(kName, "x"), "x");
    EXPECT_EQ(env_int(kName, 7, 0, 10), 7);
    EXPECT_EQ(env_bytes(kName, 9), 9);
    EXPECT_TRUE(!env_flag(kName));
  }
}

TEST(Env, ReadsAnIntegerWithinItsRange) {
  for (const auto& [text, value] : {std::pair{"-3", -3}, {"10", 10}}) {
    set(text);
    EXPECT_EQ(env_int(kName, 7, -5, 10), value);
  }
  for (const char* bad : {"11", "-6", "3x", "x", "99999999999999999999"}) {
    set(bad);
    EXPECT_EQ(env_int(kName, 7, -5, 10), 7);
  }
}

TEST(Env, ReadsASizeWithItsSuffix) {
  const uint64_t k = 1024;
  for (auto [text, bytes] : {std::pair{"100", uint64_t{100}},
                             {"4k", 4 * k},
                             {"4KiB", 4 * k},
                             {"512M", 512 * k * k},
                             {"1.5G", 3 * k * k * k / 2},
                             {"2T", 2 * k * k * k * k}}) {
    set(text);
    EXPECT_EQ(env_bytes(kName, 1), bytes);
  }
  for (const char* bad :
       {"x", "-1", "0", "5Q", "5MM", "1e300", "1e15T", "nan"}) {
    set(bad);
    EXPECT_EQ(env_bytes(kName, 1), 1);
  }
}

TEST(Env, ReadsAChoiceInAnyCase) {
  for (const auto& [text, choice] : {std::pair{"second", 1},
                                     {"SECOND", 1},
                                     {"FIRST", 0},
                                     {"third", 0},
                                     {"1", 0},
                                     {"", 0}}) {
    set(text);
    EXPECT_EQ(env_choice(kName, {"first", "second"}), choice);
  }
}

TEST(Env, ReadsAFlagInAnyCase) {
  for (const auto& [text, flag] : {std::pair{"1", true},
                                   {"true", true},
                                   {"YES", true},
                                   {"on", true},
                                   {"0", false},
                                   {"False", false},
                                   {"no", false},
                                   {"off", false},
                                   {"perhaps", false}}) {
    set(text);
    EXPECT_EQ(env_flag(kName), flag);
  }
}

// Of all threads together.
std::atomic<int> made{0}, destroyed{0};

struct Counted {
  Counted() { ++made; }
  ~Counted() { ++destroyed; }
  int uses = 0;
};

std::atomic<int> last_use{0};

// Uses the variable while the thread ends, in all rounds but the last two.
struct UsesAtTheEnd {
  static constexpr int kRounds = PTHREAD_DESTRUCTOR_ITERATIONS - 2;
  static void destroyed(void* self) {
    auto& end = *static_cast<UsesAtTheEnd*>(self);
    last_use = ++PerThread<Counted>::get().uses;
    if (++end.rounds < kRounds) pthread_setspecific(end.key, self);
  }
  UsesAtTheEnd() { pthread_key_create(&key, &destroyed); }
  ~UsesAtTheEnd() { pthread_key_delete(key); }
  pthread_key_t key;
  int rounds = 0;
};

TEST(PerThread, IsThereForWhatElseEndsWithTheThread) {
  struct Last {
    ~Last() { last_use = ++PerThread<Counted>::get().uses; }
  };
  const int made_before = made, destroyed_before = destroyed;
  UsesAtTheEnd end;
  std::thread([&] {
    thread_local Last last;
    (void)last;
    PerThread<Counted>::get().uses = 10;
    pthread_setspecific(end.key, &end);
  }).join();
  EXPECT_EQ(last_use, 11 + end.rounds);
  EXPECT_EQ(end.rounds, UsesAtTheEnd::kRounds);
  EXPECT_EQ(made - made_before, 1);
  EXPECT_EQ(destroyed - destroyed_before, 1);
}

TEST(PerThread, IsAnotherForEachThread) {
  const int before = made;
  PerThread<Counted>::get().uses = 5;
  std::thread([] { EXPECT_EQ(PerThread<Counted>::get().uses, 0); }).join();
  EXPECT_EQ(PerThread<Counted>::get().uses, 5);
  EXPECT_EQ(made - before, 2);
}

TEST(Futex, ReturnsWhereTheWordDiffersOrTheTimeIsOver) {
  std::atomic<uint32_t> word{1};
  EXPECT_EQ(futex_wait(&word, 0, 0), Woken::kMaybeChanged);
  EXPECT_EQ(futex_wait(&word, 1, 1000), Woken::kTimeout);
}

// Both threads miss the other's store only if the fences do not pair.
TEST(Futex, LightAndHeavyFenceForbidThatBothSidesMissTheOther) {
  constexpr int kRounds = 2'000;
  std::atomic<int> x{0}, y{0}, frequent_saw{0}, rare_saw{0};
  std::atomic<int> round{0}, done{0};
  std::thread frequent([&] {
    for (int i = 1; i <= kRounds; ++i) {
      while (round.load(std::memory_order_acquire) < i)
        std::this_thread::yield();
      x.store(i, std::memory_order_relaxed);
      light_fence();
      frequent_saw.store(y.load(std::memory_order_relaxed),
                         std::memory_order_relaxed);
      done.store(i, std::memory_order_release);
    }
  });
  int missed = 0;

  for (int i = 1; i <= kRounds; ++i) {
    round.store(i, std::memory_order_release);
    y.store(i, std::memory_order_relaxed);
    heavy_fence();
    rare_saw.store(x.load(std::memory_order_relaxed),
                   std::memory_order_relaxed);
    while (done.load(std::memory_order_acquire) < i) std::this_thread::yield();
    if (frequent_saw.load() < i && rare_saw.load() < i) ++missed;
  }
  frequent.join();

  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace npu
