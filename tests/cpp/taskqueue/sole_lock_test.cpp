#include "csrc/taskqueue/sole_lock.h"

#include <mutex>
#include <thread>
#include <vector>

#include "tests/cpp/check.h"

namespace npu {
namespace {

constexpr int kRounds = 20000;

TEST(SoleLock, OneThreadTakesItAgainAndAgain) {
  SoleLock lock;
  int count = 0;
  for (int i = 0; i < kRounds; ++i) {
    std::lock_guard held(lock);
    ++count;
  }
  EXPECT_EQ(count, kRounds);
}

// The counter is not atomic: if two threads held the lock at once, counts would
// be lost, and ThreadSanitizer would report it.
TEST(SoleLock, OthersMayComeWhileTheFirstIsInside) {
  SoleLock lock;
  int count = 0;
  const auto work = [&] {
    for (int i = 0; i < kRounds; ++i) {
      std::lock_guard held(lock);
      const int seen = count;
      if (i % 64 == 0) std::this_thread::yield();
      count = seen + 1;
    }
  };
  std::vector<std::thread> others;
  {
    std::lock_guard held(lock);  // this thread is the first
    others.emplace_back(work);
    others.emplace_back(work);
  }
  work();
  for (std::thread& t : others) t.join();
  EXPECT_EQ(count, 3 * kRounds);
}

}  // namespace
}  // namespace npu
