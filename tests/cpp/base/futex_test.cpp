#include "csrc/base/futex.h"

#include <thread>

#include "tests/cpp/check.h"

namespace npu {
namespace {

TEST(Futex, DoesNotSleepWhenTheWordDiffers) {
  std::atomic<uint32_t> word{1};
  EXPECT_EQ(futex_wait(&word, 0, 0), Woken::kMaybeChanged);
}

TEST(Futex, ReportsThatTheTimeIsOver) {
  std::atomic<uint32_t> word{0};
  EXPECT_EQ(futex_wait(&word, 0, 1000), Woken::kTimeout);
}

TEST(Futex, WakesASleeper) {
  std::atomic<uint32_t> word{0};

  std::thread sleeper([&] {
    while (word.load(std::memory_order_acquire) == 0) futex_wait(&word, 0, 0);
  });
  word.store(1, std::memory_order_release);
  futex_wake_all(&word);

  sleeper.join();
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
