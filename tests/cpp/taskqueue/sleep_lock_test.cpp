#include "csrc/taskqueue/sleep_lock.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/cpp/check.h"

namespace npu {
namespace {

// 'S' where it sleeps, 'R' where it runs or could.
char state_of(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(stat, text);
  return text[text.rfind(')') + 2];
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
  while (state_of(waiter) != 'S') sched_yield();
  lock.unlock();
  thread.join();
}

TEST(SleepLock, ExcludesOtherThreads) {
  constexpr int kThreads = 4, kEach = 20'000;
  SleepLock lock;
  int64_t plain = 0;  // a data race for TSan if the lock does not order it
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
