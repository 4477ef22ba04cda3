#include "csrc/stats/open_wait.h"

#include <unistd.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "csrc/stats/segment.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

constexpr uint64_t kThread = 0xffffffff;

int listed() {
  int n = 0;
  for (const OpenWait& wait : segment().waits)
    n += (wait.owner.load() & kThread) != 0;
  return n;
}

const OpenWait* of_this_thread() {
  for (const OpenWait& wait : segment().waits)
    if ((wait.owner.load() & kThread) == uint64_t(gettid())) return &wait;
  return nullptr;
}

TEST(OpenWaits, SayWhoWaitsForWhatSinceWhen) {
  ListedWait wait(uint64_t(WaitReason::kItem), 7, 1, 3, 42, 1000);
  const OpenWait* found = of_this_thread();
  EXPECT_EQ(found != nullptr, true);
  if (!found) return;
  EXPECT_EQ(found->since.load(), 1000);
  EXPECT_EQ(found->reason.load(), uint64_t(WaitReason::kItem));
  EXPECT_EQ(found->site.load(), 7);
  EXPECT_EQ(found->stream.load(), (uint64_t{1} << 32) | 3);
  EXPECT_EQ(found->until.load(), 42);
  wait.end();
  wait.end();
  EXPECT_EQ(listed(), 0);
}

TEST(OpenWaits, AreUnlistedWhenTheyAreAbandoned) {
  try {
    ListedWait wait(OpenWait::kFullQueue, 0, 0, 0, 1, 1);
    EXPECT_EQ(listed(), 1);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(listed(), 0);
}

TEST(OpenWaits, OfMoreThreadsThanPlacesAreLeftOut) {
  constexpr int kThreads = kMaxOpenWaits + 6;
  std::barrier all(kThreads + 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      ListedWait wait(0, 0, 0, 0, 1, 1);
      all.arrive_and_wait();
      all.arrive_and_wait();
    });
  all.arrive_and_wait();
  EXPECT_EQ(listed(), kMaxOpenWaits);
  all.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(listed(), 0);
}

// CI runs this one under TSan as well.
TEST(OpenWaits, AreNeverReadHalfWritten) {
  std::atomic<bool> end{false};
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i)
    writers.emplace_back([&] {
      for (uint64_t n = 0; !end.load(); ++n)
        ListedWait(n % 8, uint32_t(n % 8), 0, int64_t(n % 8), n, n);
    });
  for (int seen = 0; seen < 2'000;) {
    for (const OpenWait& wait : segment().waits) {
      const uint64_t owner = wait.owner.load(std::memory_order_acquire);
      const uint64_t thread = owner & kThread;
      if (!thread || thread == OpenWait::kBeingWritten) continue;
      const uint64_t since = wait.since.load(std::memory_order_relaxed);
      const uint64_t site = wait.site.load(std::memory_order_relaxed);
      const uint64_t until = wait.until.load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (wait.owner.load(std::memory_order_relaxed) != owner) continue;
      ++seen;
      if (until != since || site != since % 8) {
        EXPECT_EQ(until, since);
        EXPECT_EQ(site, since % 8);
        seen = 2'000;
      }
    }
  }
  end.store(true);
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace npu
