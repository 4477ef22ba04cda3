// Each test runs in a process of its own: there is one engine per process, and
// these tests are about its beginning and its end. This process itself never
// makes a stream.
#include "csrc/engine/engine.h"

#include <sched.h>
#include <string.h>

#include <set>
#include <thread>

#include "csrc/engine/blocking.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/launch_blocking.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::Gate;
using check::in_child;
using check::kAppend;
using check::kFail;
using check::kGate;
using check::kNothing;
using check::submit;
using check::word;

// Makes a child return 1, and print the line, where the condition is false.
#define REQUIRE(condition) \
  if (!(condition)) return fprintf(stderr, "line %d\n", __LINE__), 1

int run_print(const npu_kernel*, const uint64_t* words, npu_failure*) {
  fprintf(stderr, "%d,", int(words[0]));
  return NPU_OK;
}
constexpr npu_kernel kPrint{run_print, "test::print", nullptr, 0};

TEST(Engine, StartsWithTheFirstStream) {
  const auto ended = in_child([] {
    REQUIRE(device_count() == 1);
    REQUIRE(!initialized());
    current_stream(0);
    REQUIRE(initialized());
    REQUIRE(streams(0).size() == 1);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST(Engine, KnowsOnlyTheStreamsThatADeviceHas) {
  const auto ended = in_child([] {
    REQUIRE(find_stream(0, 0) == &current_stream(0));
    REQUIRE(find_stream(0, 1) == nullptr);
    REQUIRE(find_stream(0, 2 * 32 + kSyncLaunchStreams) == nullptr);
    REQUIRE(find_stream(0, kPools * 32) == nullptr);
    REQUIRE(find_stream(0, kPools * 32 - 1)->mode() == StreamMode::kQueued);
    REQUIRE(find_stream(0, -1) == nullptr);
    REQUIRE(find_stream(0, 2 * 32)->mode() == StreamMode::kInline);
    REQUIRE(find_stream(0, 4 * 32)->priority() < 0);
    REQUIRE(find_stream(0, 3 * 32) == find_stream(0, 3 * 32));
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Engine, HandsOutAPoolsStreamsInTurn) {
  const auto ended = in_child([] {
    std::set<Stream*> seen;
    Stream& first = next_stream(0, StreamPool::kNormal);
    seen.insert(&first);
    for (int i = 1; i < kStreamsPerPool; ++i)
      REQUIRE(seen.insert(&next_stream(0, StreamPool::kNormal)).second);
    REQUIRE(&next_stream(0, StreamPool::kNormal) == &first);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Engine, KeepsTheCurrentStreamPerThread) {
  const auto ended = in_child([] {
    Stream& mine = next_stream(0, StreamPool::kNormal);
    set_current_stream(mine);
    Stream* others = nullptr;
    std::thread([&] { others = &current_stream(0); }).join();
    REQUIRE(&current_stream(0) == &mine);
    REQUIRE(others == find_stream(0, 0));
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Engine, ExecutesEverythingQueuedBeforeExit) {
  const auto ended = in_child([] {
    for (uint64_t i = 0; i < 200; ++i) submit(current_stream(0), kPrint, {i});
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  std::string wanted;
  for (int i = 0; i < 200; ++i) wanted += std::to_string(i) + ",";
  EXPECT_EQ(ended.err, wanted);
}

TEST(Engine, ExecutesStreamsThatWaitForEachOtherBeforeExit) {
  const auto ended = in_child([] {
    Stream& a = next_stream(0, StreamPool::kNormal);
    Stream& b = next_stream(0, StreamPool::kNormal);
    static Gate gate;
    submit(b, kGate, {word(&gate)});
    a.wait_for(b, b.tail());
    submit(a, kPrint, {1});
    b.wait_for(a, a.tail());
    submit(b, kPrint, {2});
    gate.open();
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "1,2,");
}

TEST(Engine, ReportsAnErrorAtExitThatNobodyHasSeen) {
  const auto ended = in_child([] {
    submit(current_stream(0), kFail, {NPU_INDEX_ERROR});
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(strstr(ended.err.c_str(), "test::fail failed: asked to"));
}

TEST(Engine, LeavesNoSegmentBehindAtExit) {
  const auto ended = in_child([] {
    submit(current_stream(0), kNothing, {});
    REQUIRE(access(segment_path().c_str(), F_OK) == 0);
    fputs(segment_path().c_str(), stderr);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(ended.err.size() > 0);
  EXPECT_TRUE(access(ended.err.c_str(), F_OK) != 0);
}

TEST(Engine, LeavesNoSegmentBehindThoughItMadeNoStream) {
  const auto ended = in_child([] {
    REQUIRE(access(segment_path().c_str(), F_OK) == 0);
    fputs(segment_path().c_str(), stderr);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(ended.err.size() > 0);
  EXPECT_TRUE(access(ended.err.c_str(), F_OK) != 0);
}

TEST(Engine, CountsWhatALauncherDoesWithItsTime) {
  const auto ended = in_child([] {
    Stream& stream = current_stream(0);
    submit(stream, kNothing, {});
    synchronize_device(0, WaitReason::kDeviceSync);
    const StreamBlock& block = stream.block();
    REQUIRE(block.thread.load() > 0);
    REQUIRE(block.alive.word.load() & RunningTime::kRunning);
    // Task 0 is a sampled one.
    while (block.run_ns[int(Work::kKernel)].count.load() < 1) sched_yield();
    REQUIRE(block.latency_ns.count.load() == 1);
    REQUIRE(block.launch_ns.count.load() == 1);
    while (!(block.idle.word.load() & RunningTime::kRunning)) sched_yield();
    submit(stream, kNothing, {});
    synchronize_device(0, WaitReason::kDeviceSync);
    REQUIRE(block.woken_ns.load() > 0);
    REQUIRE(block.starved_ns.load() > 0);
    shut_down();
    REQUIRE(block.thread.load() == 0);
    const uint64_t idle = block.idle.word.load();
    REQUIRE(!(idle & RunningTime::kRunning));
    REQUIRE(idle <= block.alive.word.load());
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Engine, SaysWhichStreamHoldsAnother) {
  const auto ended = in_child([] {
    Stream& first = next_stream(0, StreamPool::kNormal);
    Stream& second = next_stream(0, StreamPool::kNormal);
    Gate gate;
    submit(first, kGate, {word(&gate)});
    REQUIRE(second.wait_for(first, first.tail()));
    const StreamBlock& block = second.block();
    while (!block.held_by.load()) sched_yield();
    REQUIRE(block.held_by.load() == 1 + uint64_t(first.id()));
    REQUIRE(block.held_until.load() == first.tail());
    while (!(block.held[int(Hold::kEvent)].word.load() & RunningTime::kRunning))
      sched_yield();
    gate.open();
    synchronize_device(0, WaitReason::kDeviceSync);
    while (block.held_by.load()) sched_yield();
    REQUIRE(
        !(block.held[int(Hold::kEvent)].word.load() & RunningTime::kRunning));
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

// Another process writes the word, and the launcher sees it at the next sampled
// task.
TEST(Engine, BlocksEachLaunchWhileAnAdministratorAsksForIt) {
  const auto ended = in_child([] {
    Stream& stream = current_stream(0);
    Counter& waited = stream.block().bypassed[int(Bypass::kLaunchBlocking)];
    // At least one of them is sampled.
    constexpr uint64_t kTasks = 3 * kSamplePeriod;
    const auto some = [&] {
      for (uint64_t i = 0; i < kTasks; ++i) submit(stream, kNothing, {});
      synchronize_device(0, WaitReason::kDeviceSync);
    };
    some();
    REQUIRE(waited.load() == 0);

    segment().control.launch_blocking.store(2);
    while (!launch_blocks() || !stream.waits_for_each_task()) some();
    const uint64_t before = waited.load();
    some();
    REQUIRE(waited.load() == before + kTasks);

    segment().control.launch_blocking.store(1);
    while (launch_blocks() || stream.waits_for_each_task()) some();
    const uint64_t after = waited.load();
    some();
    REQUIRE(waited.load() == after);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Engine, CountsWaitsForAllOfAStreamAsDrains) {
  const auto ended = in_child([] {
    Stream& stream = current_stream(0);
    Gate gate;
    submit(stream, kGate, {word(&gate)});
    const uint64_t first = stream.tail();
    submit(stream, kNothing, {});
    std::thread opener([&] {
      while (!segment().devices[0].waiting[int(WaitReason::kItem)].load())
        sched_yield();
      gate.open();
    });
    host_wait(stream, first, WaitReason::kItem);
    opener.join();
    REQUIRE(stream.block().drains[int(WaitReason::kItem)].load() == 0);

    Gate again;
    submit(stream, kGate, {word(&again)});
    std::thread other([&] {
      while (!segment().devices[0].waiting[int(WaitReason::kCopy)].load())
        sched_yield();
      again.open();
    });
    host_wait(stream, stream.tail(), WaitReason::kCopy);
    other.join();
    REQUIRE(stream.block().drains[int(WaitReason::kCopy)].load() == 1);
    REQUIRE(stream.block().drain_ns[int(WaitReason::kCopy)].load() > 0);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Engine, CountsEventsUntilSomebodySeesThemDone) {
  const auto ended = in_child([] {
    Stream& stream = current_stream(0);
    const DeviceBlock& block = segment().devices[0];
    Gate gate;
    submit(stream, kGate, {word(&gate)});
    {
      Event seen(Timing::kOff), dropped(Timing::kOff);
      REQUIRE(seen.record(stream) && seen.record(stream));
      REQUIRE(dropped.record(stream));
      REQUIRE(block.events_created.load() == 2);
      REQUIRE(block.events_recorded.load() == 3);
      REQUIRE(block.events_pending.load() == 2);
      gate.open();
      seen.synchronize();
      REQUIRE(block.events_pending.load() == 1);
      REQUIRE(seen.done());
      REQUIRE(block.events_pending.load() == 1);
    }
    REQUIRE(block.events_pending.load() == 0);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Engine, SynchronizesAllStreamsOfADevice) {
  const auto ended = in_child([] {
    std::vector<uint64_t> got[4];
    for (auto& list : got) {
      Stream& stream = next_stream(0, StreamPool::kHigh);
      for (uint64_t i = 0; i < 100; ++i)
        submit(stream, kAppend, {word(&list), i});
    }
    synchronize_device(0, WaitReason::kDeviceSync);
    for (auto& list : got) REQUIRE(list.size() == 100);
    for (Stream* stream : streams(0)) REQUIRE(stream->idle());
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Engine, TakesLaunchBlockingFromTheEnvironmentAndFromTheCaller) {
  const auto ended = in_child([] {
    setenv("ASCEND_LAUNCH_BLOCKING", "1", 1);
    Stream& stream = current_stream(0);
    std::vector<uint64_t> got;
    submit(stream, kAppend, {word(&got), 1});
    REQUIRE(got.size() == 1);
    set_launch_blocking(false);
    static Gate gate;
    submit(stream, kGate, {word(&gate)});
    REQUIRE(!stream.idle());
    gate.open();
    set_launch_blocking(true);
    submit(next_stream(0, StreamPool::kHigh), kAppend, {word(&got), 2});
    REQUIRE(got.size() == 2);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(LaunchBlocking, IsTheProcessesOrTheThreadsOwn) {
  const auto ended = in_child([] {
    bool elsewhere = true;
    auto ask = [&] { elsewhere = launch_blocks(); };
    REQUIRE(!launch_blocks());
    REQUIRE(!set_thread_launch_blocking(true));
    REQUIRE(set_thread_launch_blocking(true));
    std::thread(ask).join();
    REQUIRE(!elsewhere && launch_blocks());
    REQUIRE(set_thread_launch_blocking(false));
    REQUIRE(!launch_blocks());
    set_launch_blocking(true);
    std::thread(ask).join();
    REQUIRE(elsewhere);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST(LaunchBlocking, EndsWithItsThread) {
  const auto ended = in_child([] {
    Stream& stream = current_stream(0);
    std::thread([] { set_thread_launch_blocking(true); }).join();
    static Gate gate;
    submit(stream, kGate, {word(&gate)});  // would wait for ever
    gate.open();
    host_wait(stream, stream.tail(), WaitReason::kStreamSync);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

}  // namespace
}  // namespace npu
