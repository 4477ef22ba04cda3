// The engine's beginning and end, which streams its pools hand out, and which
// settings reach all of them. There is one engine per process, so each test
// runs in a process of its own, and this one never makes a stream.
#include "csrc/engine/stillness.h"
#include "csrc/taskqueue/this_thread.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

int run_print(const npu_kernel*, const uint64_t* words, npu_failure*) {
  fprintf(stderr, "%d,", int(words[0]));
  return NPU_OK;
}
constexpr npu_kernel kPrint{run_print, "test::print", nullptr, 0};

bool runs(const RunningTime& time) {
  return time.word.load() & RunningTime::kRunning;
}

TEST_ALONE(Engine, StartsWithTheFirstStream) {
  EXPECT_EQ(device_count(), 1);
  EXPECT_TRUE(!initialized());
  current_stream(0);
  EXPECT_TRUE(initialized());
  EXPECT_EQ(streams(0).size(), 1);
}

TEST_ALONE(Engine, KnowsOnlyTheStreamsThatADeviceHas) {
  for (const int64_t id : {-1, 1, 2 * 32 + kSyncLaunchStreams, kPools * 32})
    EXPECT_TRUE(find_stream(0, id) == nullptr);
  EXPECT_EQ(find_stream(0, 0), &current_stream(0));
  EXPECT_EQ(find_stream(0, kPools * 32 - 1)->mode(), StreamMode::kQueued);
  EXPECT_EQ(find_stream(0, 2 * 32)->mode(), StreamMode::kInline);
  EXPECT_TRUE(find_stream(0, 4 * 32)->priority() < 0);
  EXPECT_EQ(find_stream(0, 3 * 32), find_stream(0, 3 * 32));
}

// Of one stream alone: tests/cpp/states.
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

TEST(Engine, LeavesNoSegmentBehindAtExit) {
  for (const bool makes_stream : {true, false}) {
    const auto ended = in_child([=] {
      if (makes_stream) submit(current_stream(0), kNothing, {});
      fputs(segment_path().c_str(), stderr);
      return access(segment_path().c_str(), F_OK);
    });
    EXPECT_EQ(ended.code, 0);
    EXPECT_TRUE(ended.err.size() > 0);
    EXPECT_TRUE(access(ended.err.c_str(), F_OK) != 0);
  }
}

TEST_ALONE(Engine, CountsWhatALauncherDoesWithItsTime) {
  Stream& stream = current_stream(0);
  const StreamBlock& block = stream.block();
  submit(stream, kNothing, {});
  drain(stream);
  EXPECT_TRUE(block.thread.load() > 0);
  EXPECT_TRUE(runs(block.alive));
  // Task 0 is a sampled one.
  while (block.run_ns[int(Work::kKernel)].count.load() < 1) sched_yield();
  EXPECT_EQ(block.latency_ns.count.load(), 1);
  EXPECT_EQ(block.launch_ns.count.load(), 1);
  while (!runs(block.idle)) sched_yield();
  submit(stream, kNothing, {});
  drain(stream);
  EXPECT_TRUE(block.woken_ns.load() > 0);
  EXPECT_TRUE(block.starved_ns.load() > 0);
  shut_down();
  EXPECT_EQ(block.thread.load(), 0);
  EXPECT_TRUE(!runs(block.idle));
  EXPECT_TRUE(block.idle.word.load() <= block.alive.word.load());
}

TEST_ALONE(Engine, SaysWhichStreamHoldsAnother) {
  Stream& first = next_stream(0, StreamPool::kNormal);
  Stream& second = next_stream(0, StreamPool::kNormal);
  const StreamBlock& block = second.block();
  const RunningTime& held = block.held[int(Hold::kEvent)];
  Gate gate;
  submit(first, kGate, {word(&gate)});
  EXPECT_TRUE(second.wait_for(first, first.tail()));
  while (!block.held_by.load()) sched_yield();
  EXPECT_EQ(block.held_by.load(), 1 + uint64_t(first.id()));
  EXPECT_EQ(block.held_until.load(), first.tail());
  while (!runs(held)) sched_yield();
  gate.open();
  synchronize_device(0, WaitReason::kDeviceSync);
  while (block.held_by.load()) sched_yield();
  EXPECT_TRUE(!runs(held));
}

TEST_ALONE(Engine, CountsWaitsForAllOfAStreamAsDrains) {
  Stream& stream = current_stream(0);
  for (const bool of_all : {false, true}) {
    const WaitReason reason = of_all ? WaitReason::kCopy : WaitReason::kItem;
    Gate gate;
    submit(stream, kGate, {word(&gate)});
    const uint64_t number = stream.tail();
    if (!of_all) submit(stream, kNothing, {});
    std::thread opener([&] {
      while (!segment().devices[0].waiting[int(reason)].load()) sched_yield();
      gate.open();
    });
    host_wait(stream, number, reason);
    opener.join();
    EXPECT_EQ(stream.block().drains[int(reason)].load(), of_all);
    EXPECT_EQ(stream.block().drain_ns[int(reason)].load() > 0, of_all);
    drain(stream);
  }
}

TEST_ALONE(Engine, CountsEventsUntilSomebodySeesThemDone) {
  Stream& stream = current_stream(0);
  const DeviceBlock& block = segment().devices[0];
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  {
    Event seen(Timing::kOff), dropped(Timing::kOff);
    EXPECT_TRUE(seen.record(stream));
    EXPECT_TRUE(seen.record(stream));
    EXPECT_TRUE(dropped.record(stream));
    EXPECT_EQ(block.events_created.load(), 2);
    EXPECT_EQ(block.events_recorded.load(), 3);
    EXPECT_EQ(block.events_pending.load(), 2);
    gate.open();
    seen.synchronize();
    EXPECT_EQ(block.events_pending.load(), 1);
    EXPECT_TRUE(seen.done());
    EXPECT_EQ(block.events_pending.load(), 1);
  }
  EXPECT_EQ(block.events_pending.load(), 0);
}

TEST_ALONE(Engine, SynchronizesAllStreamsOfADevice) {
  Numbers got[4];
  for (auto& list : got) {
    Stream& stream = next_stream(0, StreamPool::kHigh);
    for (uint64_t i = 0; i < 100; ++i) append(stream, list, i);
  }
  synchronize_device(0, WaitReason::kDeviceSync);
  for (auto& list : got) EXPECT_EQ(list.size(), 100);
  for (Stream* stream : streams(0)) EXPECT_TRUE(stream->idle());
}

TEST_ALONE(Engine, TellsAnObserverOfPresentAndFutureStreams) {
  struct Counted final : Observer {
    int tasks = 0;
    bool submitted(Stream&, uint64_t, const Task&) override { return !++tasks; }
  } counted;
  Stream& present = current_stream(0);
  install_observer(counted, true);
  submit(present, kNothing, {});
  submit(next_stream(0, StreamPool::kNormal), kNothing, {});
  EXPECT_EQ(counted.tasks, 2);
  synchronize_device(0, WaitReason::kDeviceSync);
  install_observer(counted, false);
  EXPECT_TRUE(!observers());
  submit(present, kNothing, {});
  submit(next_stream(0, StreamPool::kHigh), kNothing, {});
  EXPECT_EQ(counted.tasks, 2);
}

TEST_ALONE(LaunchBlocking, OfTwoThreadsEndsWithTheSecond) {
  Stream& stream = current_stream(0);
  const Counter& waited = stream.block().bypassed[int(Bypass::kLaunchBlocking)];
  set_thread_launch_blocking(true);
  std::thread([&] {
    set_thread_launch_blocking(true);
    set_thread_launch_blocking(false);
  }).join();
  Numbers got;
  append(stream, got, 1);
  EXPECT_TRUE(got.size() == 1 && waited.load() == 1);
  set_thread_launch_blocking(false);
  submit(stream, kNothing, {});
  EXPECT_EQ(waited.load(), 1);
}

constexpr uint64_t kLong = 60'000'000'000;

Stream& side(int i) {
  return *find_stream(0, (int64_t(StreamPool::kNormal) << 5) + i);
}

TEST_ALONE(Stillness, HoldsWhatOtherThreadsSubmitMeanwhile) {
  std::atomic<uint64_t> ran{0}, submitted{0};
  const std::function<void()> count = [&] { ++ran; };
  std::atomic<bool> stop{false};
  Stream& a = side(0);
  side(1);
  const auto queued = [&] { return a.tail() - a.retired().value(); };
  std::thread other([&] {
    while (!stop.load()) {
      if (queued() >= 64) continue;  // tasks of some drivers take long
      submit(a, kCall, {word(&count)});
      submitted.fetch_add(1);
    }
  });
  bool still = true;
  for (int i = 0; i < 20; ++i) {
    Stillness stillness(0, kLong);
    EXPECT_TRUE(stillness.reached());
    const uint64_t seen = ran.load(), before = submitted.load();
    // Wait until the other thread has submitted more, or has enough queued.
    while (submitted.load() < before + 32 && queued() < 64)
      std::this_thread::yield();
    still = still && ran.load() == seen;
  }
  stop.store(true);
  other.join();
  drain(a);
  EXPECT_TRUE(still);
  EXPECT_EQ(ran.load(), submitted.load());
}

TEST_ALONE(Stillness, IsReachedBesideAStreamThatFailed) {
  Stream& a = side(0);
  fail(a);
  {
    Stillness stillness(0, kLong);
    EXPECT_TRUE(stillness.reached());
  }
  a.clear_error();
  EXPECT_TRUE(works(a));
}

TEST_ALONE(Stillness, IsNotReachedWhileATaskRunsAndLeavesNothingBehind) {
  Gate gate;
  Stream& a = side(0);
  hold(a, gate);
  {
    Stillness stillness(0, 1);
    EXPECT_TRUE(!stillness.reached());
  }
  gate.open();
  EXPECT_TRUE(works(a));
  Stillness again(0, kLong);
  EXPECT_TRUE(again.reached());
}

TEST_ALONE(Fork, BeforeTheFirstStreamLeavesTheChildFree) {
  EXPECT_TRUE(in_child([] { return works(current_stream(0)); }).code);
  EXPECT_TRUE(works(current_stream(0)));
}

TEST_ALONE(Fork, LetsAChildThatDoesNoWorkExitWithoutAHang) {
  static Gate gate;
  hold(current_stream(0), gate);
  wait_until_others_sleep();
  EXPECT_EQ(in_child([] { return 7; }).code, 7);
  gate.open();
  EXPECT_TRUE(works(current_stream(0)));
}

TEST_ALONE(Fork, KeepsTheParentsSegmentFromTheChild) {
  EXPECT_TRUE(works(current_stream(0)));
  StreamBlock& block = current_stream(0).block();
  wait_until_others_sleep();
  EXPECT_TRUE(in_child([&block] {
                block.retired.store(1000, std::memory_order_relaxed);
                return segment_path().empty();
              }).code);
  EXPECT_TRUE(!access(segment_path().c_str(), F_OK));
  EXPECT_EQ(block.retired.load(std::memory_order_relaxed), 1);
}

}  // namespace
}  // namespace npu
