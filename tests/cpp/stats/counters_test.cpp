// What the counters count, and that no reader sees half of a change.
#include <barrier>

#include "csrc/stats/layout.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

TEST(Histogram, PutsAValueIntoTheBucketOfItsLogarithm) {
  Log2Histogram<8> h{};
  for (uint64_t value : {0, 1, 2, 3, 4, 7, 8}) h.add(value);
  EXPECT_EQ(h.count.load(), 7);
  EXPECT_EQ(h.sum.load(), 25);
  for (auto [bucket, count] :
       {std::pair{0, 1}, {1, 1}, {2, 2}, {3, 2}, {4, 1}, {5, 0}})
    EXPECT_EQ(h.bucket[bucket].load(), count);
  // What is too large is in the last one.
  for (uint64_t large : {~uint64_t{0}, uint64_t{128}}) h.add(large);
  EXPECT_EQ(h.bucket[7].load(), 2);
}

TEST(Layout, KeepsProducersAndLauncherOnDifferentLines) {
  const auto line = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) / kCacheLine;
  };
  const StreamBlock block{};
  EXPECT_TRUE(line(&block.tail) != line(&block.thread));
  EXPECT_TRUE(line(&block.retired) != line(&block.tail));
  EXPECT_TRUE(line(&block.retired) != line(&block.full_waits));
}

TEST(TimeHistogram, QuartersEachPowerOfTwo) {
  // The bucket of each value: from the definition, by hand.
  const std::map<uint64_t, int> buckets = {
      {0, 0},
      {3, 3},
      {4, 4},
      {7, 7},
      {8, 8},
      {9, 8},
      {10, 9},
      {15, 11},
      {16, 12},
      {19, 12},
      {20, 13},
      {1000, 35},
      {1024, 36},
      // What is too large is in the last one.
      {(uint64_t{1} << 40) - 1, kTimeBuckets - 1},
      {~uint64_t{0}, kTimeBuckets - 1}};
  for (const auto& [value, bucket] : buckets)
    EXPECT_EQ(TimeHistogram::index(value), bucket);
}

TEST(TimeHistogram, HasBucketsThatRiseWithoutGaps) {
  int last = 0;
  for (uint64_t value = 0; value < 100'000; ++value) {
    const int b = TimeHistogram::index(value);
    EXPECT_TRUE(b == last || b == last + 1);
    last = b;
  }
}

TEST(RunningTime, ShowsAReaderOneSumThatNeverFalls) {
  RunningTime time{};
  time.start(1000);
  EXPECT_EQ(time.at(1000), 0);
  EXPECT_EQ(time.at(1500), 500);
  time.stop(1500);
  EXPECT_EQ(time.at(9000), 500);
  time.add(7);
  time.start(9000);
  EXPECT_EQ(time.at(9000), 507);
  time.stop(9010);
  EXPECT_EQ(time.at(99999), 517);
}

TEST(CountedWait, IsVisibleWhileItLastsAndCountedWhenItEnds) {
  Counter count{0}, ns{0}, open{0}, from{0};
  CountedWait first(count, ns, open, from, 100);
  CountedWait second(count, ns, open, from, 300);
  EXPECT_EQ(count.load(), 2);
  EXPECT_EQ(open.load(), 2);
  // At 400: 300 and 100 so far.
  EXPECT_EQ(open.load() * 400 - from.load(), 400);
  first.end(400);
  EXPECT_EQ(ns.load(), 300);
  EXPECT_EQ(open.load() * 450 - from.load(), 150);
  second.end(450);
  EXPECT_EQ(ns.load(), 450);
  EXPECT_EQ(from.load(), 0);
}

TEST(Sampling, MeasuresEachTaskOfARepeatedStepEquallyOften) {
  for (uint64_t tasks = 1; tasks <= 64; ++tasks) {
    const uint64_t steps = 16'000;
    Numbers measured(tasks);
    for (uint64_t n = 0; n < tasks * steps; ++n)
      measured[n % tasks] += is_sampled(n);
    for (const uint64_t count : measured) {
      EXPECT_TRUE(count * kSamplePeriod > steps * 97 / 100);
      EXPECT_TRUE(count * kSamplePeriod < steps * 103 / 100);
    }
  }
}

TEST(Sampling, HasNoLongGapsAndStartsWithTheFirst) {
  uint64_t last = 0;
  for (uint64_t n = 0; n < 1'000'000; ++n) {
    if (!is_sampled(n)) continue;
    EXPECT_TRUE(n - last <= 34);
    last = n;
  }
  EXPECT_TRUE(is_sampled(0));
  EXPECT_TRUE(last > 999'000);
}

TEST(Sampling, GoesOnWhereTheNumberNoLongerFitsItsHash) {
  const uint64_t far = (uint64_t{1} << 40) + 12'345;
  uint64_t measured = 0;
  for (uint64_t n = 0; n < 160'000; ++n) measured += is_sampled(far + n);

  EXPECT_TRUE(measured > 9'700 && measured < 10'300);
}

TEST(Sampling, TakesDepthsOfAFourthOfTheMeasuredTasks) {
  uint64_t depths = 0, measured = 0;
  for (uint64_t n = 0; n < 640'000; ++n) {
    depths += is_sampled(n, kDepthPeriod);
    measured += is_sampled(n);
    // Only measured tasks come to where depths are taken.
    EXPECT_TRUE(is_sampled(n) || !is_sampled(n, kDepthPeriod));
  }
  EXPECT_TRUE(depths > 9'700 && depths < 10'300);
  EXPECT_TRUE(measured > 38'800 && measured < 41'200);
}

TEST(Exemplars, KeepTheNewestTaskOfEachPowerOfTwo) {
  Exemplars kept{};
  kept.note(0, 5, 100);
  kept.note(16, 7, 200);
  kept.note(32, 8, 300);
  kept.note(48, 0, 400);
  kept.note(64, ~uint64_t{0}, 500);

  EXPECT_EQ(kept.octave[2].task.load(), 17);
  EXPECT_EQ(kept.octave[2].value.load(), 7);
  EXPECT_EQ(kept.octave[3].at.load(), 300);
  EXPECT_EQ(kept.octave[0].task.load(), 49);
  EXPECT_EQ(kept.octave[kExemplarOctaves - 1].task.load(), 65);
}

// CI runs this one under TSan as well.
TEST(Exemplars, AreNeverReadHalfChanged) {
  Exemplars kept{};
  std::atomic<bool> end{false};
  std::thread writer([&] {
    for (uint64_t i = 0; !end.load(); ++i) kept.note(i, 1024 + i % 512, i);
  });
  for (int seen = 0; seen < 20'000;) {
    const auto& entry = kept.octave[10];
    const uint64_t task = entry.task.load(std::memory_order_acquire);
    if (!task) continue;
    const uint64_t value = entry.value.load(std::memory_order_relaxed);
    const uint64_t at = entry.at.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.task.load(std::memory_order_relaxed) != task) continue;
    ++seen;
    if (value != 1024 + (task - 1) % 512 || at != task - 1) {
      EXPECT_EQ(value, 1024 + (task - 1) % 512);
      break;
    }
  }
  end.store(true);
  writer.join();
}

TEST(Names, CountWhatTheirTasksCost) {
  static const char kName[] = "test::costly", kOther[] = "test::unpublished";
  publish_name(kName);
  count_name(kName, 40);
  count_name(kName, 2);
  count_name(kOther, 1000);

  uint64_t tasks = 0, ns = 0;
  for (const NameEntry& entry : segment().names)
    if (entry.key.load() == uint64_t(reinterpret_cast<uintptr_t>(kName))) {
      tasks = entry.tasks.load();
      ns = entry.ns.load();
    }
  EXPECT_EQ(tasks, 2);
  EXPECT_EQ(ns, 42);
}

TEST(Sites, CountTheWaitsAndTheSampledTasksFromThere) {
  constexpr uint64_t kItem = uint64_t(WaitReason::kItem);
  publish_site(7, "train.py:7 in step");
  count_wait_at(7, kItem, 30);
  count_wait_at(7, uint64_t(WaitReason::kCopy), 12);
  for (const uint64_t ns : {40, 2}) count_task_at(7, ns);
  for (const uint32_t none : {0u, uint32_t(kMaxSites)}) {
    count_wait_at(none, kItem, 1);
    count_task_at(none, 1);
  }
  const SiteEntry& entry = segment().sites[7];
  EXPECT_EQ(entry.waits.load(), 2);
  EXPECT_EQ(entry.wait_ns.load(), 42);
  EXPECT_EQ(entry.reason.load(), uint32_t(WaitReason::kCopy));
  EXPECT_EQ(entry.tasks.load(), 2);
  EXPECT_EQ(entry.ns.load(), 42);
  const SiteEntry& nowhere = segment().sites[0];
  EXPECT_TRUE(nowhere.waits.load() == 0 && nowhere.tasks.load() == 0);
  EXPECT_EQ(segment().process.sites.load(), 8);
}

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
