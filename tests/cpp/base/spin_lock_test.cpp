#include "csrc/base/spin_lock.h"

#include <mutex>
#include <thread>
#include <vector>

#include "tests/cpp/check.h"

namespace npu {
namespace {

TEST(SpinLock, RefusesASecondHolder) {
  SpinLock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_TRUE(!lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
}

TEST(SpinLock, ExcludesOtherThreads) {
  constexpr int kThreads = 4, kEach = 20'000;
  SpinLock lock;
  int64_t plain = 0;  // TSan reports a race if the lock does not order it
  std::vector<std::thread> threads;

  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        std::lock_guard hold(lock);
        ++plain;
      }
    });
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(plain, kThreads * kEach);
}

}  // namespace
}  // namespace npu
