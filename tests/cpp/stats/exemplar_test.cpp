#include <atomic>
#include <thread>

#include "csrc/stats/layout.h"
#include "csrc/stats/segment.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

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

}  // namespace
}  // namespace npu
