// What the counters count, and that no reader sees half of a change.
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "csrc/stats/collectives.h"
#include "csrc/stats/layout.h"
#include "csrc/stats/open_wait.h"
#include "csrc/stats/segment.h"
#include "tests/cpp/check.h"

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
}

TEST(Histogram, PutsWhateverIsTooLargeIntoTheLastBucket) {
  Log2Histogram<8> h{};
  h.add(~uint64_t{0});
  h.add(128);

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
  // Value, bucket: from the definition, by hand.
  for (auto [value, bucket] : {std::pair{0, 0},
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
                               {1024, 36}})
    EXPECT_EQ(TimeHistogram::index(uint64_t(value)), bucket);
}

TEST(TimeHistogram, HasBucketsThatRiseWithoutGaps) {
  int last = 0;
  for (uint64_t value = 0; value < 100'000; ++value) {
    const int b = TimeHistogram::index(value);
    EXPECT_TRUE(b == last || b == last + 1);
    last = b;
  }
}

TEST(TimeHistogram, PutsWhateverIsTooLargeIntoTheLastBucket) {
  EXPECT_EQ(TimeHistogram::index(~uint64_t{0}), kTimeBuckets - 1);
  EXPECT_EQ(TimeHistogram::index((uint64_t{1} << 40) - 1), kTimeBuckets - 1);
}

TEST(RunningTime, ShowsAReaderOneSumThatNeverFalls) {
  RunningTime time{};
  const auto at = [&time](uint64_t now) {
    const uint64_t word = time.word.load();
    return word & RunningTime::kRunning ? now - (word & ~RunningTime::kRunning)
                                        : word;
  };
  time.start(1000);
  EXPECT_EQ(at(1000), 0);
  EXPECT_EQ(at(1500), 500);
  time.stop(1500);
  EXPECT_EQ(at(9000), 500);
  time.add(7);
  time.start(9000);
  EXPECT_EQ(at(9000), 507);
  time.stop(9010);
  EXPECT_EQ(at(99999), 517);
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
    std::vector<uint64_t> measured(tasks);
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

TEST(Sites, CountTheWaitsFromThere) {
  publish_site(7, "train.py:7 in step");
  count_wait_at(7, uint64_t(WaitReason::kItem), 30);
  count_wait_at(7, uint64_t(WaitReason::kCopy), 12);
  count_wait_at(0, uint64_t(WaitReason::kItem), 1);
  count_wait_at(uint32_t(kMaxSites), uint64_t(WaitReason::kItem), 1);

  const SiteEntry& entry = segment().sites[7];
  EXPECT_EQ(entry.waits.load(), 2);
  EXPECT_EQ(entry.wait_ns.load(), 42);
  EXPECT_EQ(entry.reason.load(), uint32_t(WaitReason::kCopy));
  EXPECT_EQ(segment().sites[0].waits.load(), 0);
  EXPECT_EQ(segment().process.sites.load(), 8);
}

TEST(Sites, CountTheSampledTasksFromThere) {
  publish_site(8, "train.py:8 in step");
  count_task_at(8, 40);
  count_task_at(8, 2);
  count_task_at(0, 1);
  count_task_at(uint32_t(kMaxSites), 1);

  const SiteEntry& entry = segment().sites[8];
  EXPECT_EQ(entry.tasks.load(), 2);
  EXPECT_EQ(entry.ns.load(), 42);
  EXPECT_EQ(entry.waits.load(), 0);
  EXPECT_EQ(segment().sites[0].tasks.load(), 0);
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

LoggedCollective call(int group, uint64_t seq) {
  static const int64_t sizes[2] = {2, 3};
  static const TensorShape shape{sizes, 2, 6, true, -1};
  return log_collective(
      {group, seq, false, "all_reduce", 7, 1000, 60, -1, 0, 5, 24, &shape, 1});
}

const CollectiveEntry* find(int group, uint64_t seq) {
  for (const CollectiveEntry& entry : collective_log().log)
    if (entry.state.load() % CollectiveEntry::kStates &&
        entry.group.load() == uint64_t(group) && entry.seq.load() == seq)
      return &entry;
  return nullptr;
}

TEST(Collectives, AnEntryFollowsItsCall) {
  const int group = log_group("one", "", "0-1", 1, 2);
  LoggedCollective entry = call(group, 3);
  const CollectiveEntry* found = find(group, 3);
  EXPECT_EQ(found != nullptr, true);
  if (!found) return;
  const auto state = [&] {
    return found->state.load() % CollectiveEntry::kStates;
  };
  EXPECT_EQ(state(), uint64_t(CollectiveEntry::kScheduled));
  entry.started(2000);
  EXPECT_EQ(state(), uint64_t(CollectiveEntry::kStarted));
  EXPECT_EQ(found->started_ns.load(), 2000);
  entry.ended(3000, 0, 0);
  EXPECT_EQ(state(), uint64_t(CollectiveEntry::kCompleted));
  EXPECT_EQ(found->ended_ns.load(), 3000);
  EXPECT_EQ(found->shapes[1].load(), 2);
  EXPECT_EQ(found->shapes[2].load(), 3);
  EXPECT_EQ(found->shapes[3].load(), 0);
}

TEST(Collectives, OneThatHasNotEndedIsNeverOverwritten) {
  const int group = log_group("two", "", "0", 0, 1);
  LoggedCollective open = call(group, 1);
  for (uint64_t i = 0; i < 3 * kCollectives; ++i)
    call(group, 10 + i).ended(1, 0, 0);
  const CollectiveEntry* found = find(group, 1);
  EXPECT_EQ(found != nullptr, true);
  open.ended(5, 0, 0);
  EXPECT_EQ(found && found->ended_ns.load() == 5, true);
}

TEST(Collectives, MoreThanThereIsRoomForAreCountedAndHarmNone) {
  const int group = log_group("three", "", "0", 0, 1);
  const uint64_t before = collective_log().dropped.load();
  std::vector<LoggedCollective> open;
  for (int i = 0; i < kCollectives + 5; ++i) open.push_back(call(group, 7));
  EXPECT_EQ(collective_log().dropped.load() - before, 5);
  for (LoggedCollective& entry : open) entry.ended(1, 0, 0);
}

TEST(Collectives, ThreadsNeverShareAnEntry) {
  const int group = log_group("four", "", "0", 0, 1);
  std::atomic<int> wrong{0};
  const auto work = [&](uint64_t from) {
    for (uint64_t i = from; i < from + 5000; ++i) {
      LoggedCollective entry = call(group, i);
      entry.started(i);
      const CollectiveEntry* mine = find(group, i);
      if (!mine || mine->started_ns.load() != i) ++wrong;
      entry.ended(i, 0, 0);
      if (i % 100) i += 50;
    }
  };
  std::thread other(work, 1'000'000);
  work(2'000'000);
  other.join();
  EXPECT_EQ(wrong.load(), 0);
}

const CollectiveTotals* totals(int group, const char* name) {
  return totals_of(collective_log().totals, group, name);
}

TEST(Collectives, AnEndedCallIsAddedToItsGroupAndName) {
  const int group = log_group("five", "", "0-1", 1, 2);
  LoggedCollective entry = call(group, 0);  // at 1000
  entry.started(2000);
  entry.all_here()->store(2400);
  entry.ended(3000, 700, 200);
  call(group, 1).failed(1);
  const CollectiveTotals& found = *totals(group, "all_reduce");
  EXPECT_EQ(found.run_ns.count.load(), 1);
  EXPECT_EQ(found.run_ns.sum.load(), 1000);
  EXPECT_EQ(found.queued_ns.load(), 1000);
  EXPECT_EQ(found.waited_ns.load(), 400);
  EXPECT_EQ(found.exposed_ns.load(), 700);
  EXPECT_EQ(found.host_wait_ns.load(), 200);
  EXPECT_EQ(found.bytes.load(), 24);
  EXPECT_EQ(found.failed.load(), 1);
  EXPECT_EQ(totals(group, "all_reduce") == &found, true);
  EXPECT_EQ(totals(group, "broadcast") == &found, false);
}

TEST(Collectives, AHostPlaceIsAsOldAsItsLine) {
  HostPlace& host = collective_log().host;
  note_place(host, "a.py:1 in f", false, 0, 100);
  note_place(host, "a.py:1 in f", true, 2, 200);
  EXPECT_EQ(host.since_ns.load(), 100);
  EXPECT_EQ(host.seen_ns.load(), 200);
  EXPECT_EQ(host.oom_ns.load(), 200);
  EXPECT_EQ(host.in_loader.load(), 1);
  note_place(host, "a.py:2 in f", false, 2, 300);
  EXPECT_EQ(host.since_ns.load(), 300);
  EXPECT_EQ(host.oom_ns.load(), 200);
  EXPECT_EQ(host.changes.load() % 2, 0);
}

}  // namespace
}  // namespace npu
