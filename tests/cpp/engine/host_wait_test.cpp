#include "csrc/interop/foreign.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

std::atomic<int> released{0}, held_again{0}, asked{0};
Gate* gate_to_open = nullptr;
std::vector<HostWait> told;

void* release() {
  ++released;
  return &released;
}
void reacquire(void* token) {
  if (token == &released) ++held_again;
}
void open_the_gate() {
  ++asked;
  gate_to_open->open();
}
void interrupt() {
  ++asked;
  throw std::runtime_error("interrupted");
}
void tell(const HostWait& w) { told.push_back(w); }

// A stream that stands still until a hook, or the test, opens its gate.
struct Blocked {
  explicit Blocked(Stream& s = current_stream(0)) : stream(s) {
    gate_to_open = &gate;
    hold(stream, gate);
  }
  void wait(WaitReason reason, const char* op = nullptr) {
    host_wait(stream, stream.tail(), reason, op);
  }
  // Lets the host wait as usual, until the stream has done all.
  void go_on() {
    hooks = {};
    drain(stream, gate);
  }
  Stream& stream;
  Gate gate;
};

const DeviceBlock& device() { return segment().devices[0]; }

TEST_ALONE(HostWait, CallsTheHooksAroundTheSleepAndCountsTheReason) {
  constexpr int kReason = int(WaitReason::kItem);
  Blocked b;
  hooks = {release, reacquire, open_the_gate};
  b.wait(WaitReason::kItem);
  EXPECT_TRUE(asked > 0 && released > 0);
  EXPECT_EQ(released.load(), held_again.load());
  EXPECT_EQ(device().waits[kReason].load(), 1);
  EXPECT_TRUE(device().wait_ns[kReason].load() > 0);
  b.wait(WaitReason::kItem);  // there is nothing to wait for
  EXPECT_EQ(device().waits[kReason].load(), 1);
}

void refuse(const HostWait& w) {
  EXPECT_EQ(w.pending, 1);
  EXPECT_EQ(w.op, std::string("item"));
  throw std::runtime_error("refused");
}

TEST_ALONE(HostWait, CanBeRefusedWhileItIsWatched) {
  Blocked b;
  hooks = {.before_wait = refuse};
  watch_host_waits(true);
  // This wait would never end.
  EXPECT_THROWS(b.wait(WaitReason::kItem, "item"), std::runtime_error);
  watch_host_waits(false);
  b.gate.open();
  b.wait(WaitReason::kItem, "item");
}

// Asked only while the task is not done; no is taken at its word.
TEST_ALONE(HostWait, GoesOnForAsLongAsItIsTold) {
  Blocked b;
  const auto waited = [&](bool goes_on) {
    return host_wait_while(b.stream, b.stream.tail(), WaitReason::kStreamSync,
                           [&b, goes_on] {
                             if (goes_on) b.gate.open();
                             return goes_on;
                           });
  };
  EXPECT_TRUE(!waited(false));
  EXPECT_TRUE(b.stream.retired().value() != b.stream.tail());
  EXPECT_TRUE(waited(true));
  EXPECT_TRUE(waited(false));  // done already
}

// A wait for tasks that are done already waits for none.
TEST_ALONE(HostWait, IsToldWhenItTookTimeAndAlwaysWhileWatched) {
  static Numbers before;
  for (int i = 0; i < 5; ++i) submit(current_stream(0), kNothing, {});
  drain(current_stream(0));
  Blocked b;
  submit(b.stream, kNothing, {});
  hooks = {
      .check_interrupt = open_the_gate,
      .before_wait = [](const HostWait& w) { before.push_back(w.pending); },
      .after_wait = tell};
  b.wait(WaitReason::kCopy, "copy");
  EXPECT_EQ(told.size(), 1);
  EXPECT_TRUE(told[0].ns > 0 && before.empty());
  EXPECT_EQ(told[0].pending, 2);
  b.wait(WaitReason::kCopy, "copy");
  EXPECT_EQ(told.size(), 1);
  watch_host_waits(true);
  b.wait(WaitReason::kCopy, "copy");
  EXPECT_EQ(told.size(), 2);
  EXPECT_TRUE(told[1].ns == 0 && told[1].pending == 0);
  EXPECT_EQ(told[1].reason, WaitReason::kCopy);
  before.clear();
  Blocked again;
  submit(again.stream, kNothing, {});
  host_wait(again.stream, again.stream.tail() - 1, WaitReason::kCopy, "copy");
  EXPECT_EQ(before, Numbers{2});
  EXPECT_EQ(told.back().pending, 1);
}

TEST_ALONE(HostWait, EndsAfterTheTimeOfItsKind) {
  setenv("ACL_STREAM_TIMEOUT", "1", 1);       // milliseconds
  setenv("ACL_DEVICE_SYNC_TIMEOUT", "1", 1);  // seconds
  Blocked b;
  for (const auto& [reason, limit_ns] :
       {std::pair{WaitReason::kStreamSync, 1'000'000},
        {WaitReason::kDeviceSync, 1'000'000'000}}) {
    const uint64_t began = now_ns();
    EXPECT_THROWS(b.wait(reason), std::runtime_error);
    EXPECT_TRUE(now_ns() - began >= uint64_t(limit_ns));
  }
  b.gate.open();
  b.wait(WaitReason::kItem);  // has no limit
}

TEST_ALONE(HostWait, ForSpaceIsToldAndCountedByItsStream) {
  Stream stream(0, 0, 0, StreamMode::kQueued, 16);
  Blocked b(stream);
  while (stream.tail() < 16) submit(stream, kNothing, {});
  hooks = {.check_interrupt = open_the_gate, .after_wait = tell};
  submit(stream, kNothing, {});
  EXPECT_EQ(told.size(), 1);
  EXPECT_TRUE(told[0].reason == kFullQueue && told[0].ns > 0);
  EXPECT_EQ(told[0].pending, 16);
  const StreamBlock& block = stream.block();
  EXPECT_EQ(block.full_waits.load(), 1);
  EXPECT_TRUE(block.full_wait_ns.load() > 0);
  EXPECT_EQ(block.full_waiting.load(), 0);
  drain(stream);
}

// The count of waits rises when it begins and their time when it ends;
// afterwards nothing says any longer that it waits, and all can be used.
TEST_ALONE(HostWait, ThatIsInterruptedIsCountedToItsEndAndHarmsNothing) {
  constexpr int kReason = int(WaitReason::kItem);
  Blocked b;
  hooks = {release, reacquire, interrupt};
  EXPECT_THROWS(b.wait(WaitReason::kItem), std::runtime_error);
  EXPECT_EQ(released.load(), held_again.load());
  EXPECT_EQ(device().waits[kReason].load(), 1);
  EXPECT_TRUE(device().wait_ns[kReason].load() > 0);
  EXPECT_EQ(device().waiting[kReason].load(), 0);
  EXPECT_EQ(device().waiting_from[kReason].load(), 0);
  EXPECT_EQ(b.stream.block().drains[kReason].load(), 0);
  b.go_on();
  EXPECT_TRUE(works(b.stream));
}

TEST_ALONE(HostWait, LeavesAFullRingUnchangedWhenInterrupted) {
  Numbers got;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Blocked b(stream);
  for (uint64_t i = 1; i < stream.capacity(); ++i)
    submit(stream, kAppend, {word(&got), i}, 40);
  hooks = {release, reacquire, interrupt};
  const uint64_t before = stream.tail();
  EXPECT_THROWS(submit(stream, kAppend, {word(&got), 0}, 40),
                std::runtime_error);
  EXPECT_EQ(stream.tail(), before);
  hooks = {};
  b.gate.open();
  submit(stream, kAppend, {word(&got), before}, 40);
  drain(stream);
  EXPECT_TRUE(got.size() == before && got.back() == before);
}

TEST_ALONE(HostWait, IsNotAskedOfAnEventThatIsRecordedWhereLaunchesBlock) {
  Blocked b;
  set_launch_blocking(true);
  hooks = {release, reacquire, interrupt};
  Event event(Timing::kOn);
  EXPECT_TRUE(event.record(b.stream));
  EXPECT_TRUE(asked == 0 && event.recorded() && event.number() == 2);
  EXPECT_TRUE(!event.done());
  hooks = {};
  b.gate.open();
  event.synchronize();
  EXPECT_TRUE(event.time_ns() != 0);
}

TEST_ALONE(HostWait, OfALaunchThatBlocksLeavesForeignWorkQueued) {
  static int runs = 0, releases = 0;
  Blocked b;
  set_launch_blocking(true);
  hooks = {release, reacquire, interrupt};
  const ForeignWork work{"work",
                         [](void*, uint64_t, npu_failure&) {
                           ++runs;
                           return int(NPU_OK);
                         },
                         [](void*) { ++releases; },
                         nullptr,
                         {}};
  EXPECT_THROWS(submit_foreign(b.stream, work), std::runtime_error);
  EXPECT_TRUE(runs == 0 && releases == 0);
  b.go_on();
  EXPECT_TRUE(runs == 1 && releases == 1);
}

// This is legal where launches do not block, so it must be where they do.
TEST_ALONE(HostWait, IsNotAskedOfATaskThatLaunchesAnotherOnItsStream) {
  Stream& stream = current_stream(0);
  set_launch_blocking(true);
  Numbers got;
  std::string why;
  const std::function<void()> launch = [&] {
    why = thrown<std::exception>([&] { append(stream, got, 7); });
  };
  submit(stream, kCall, {word(&launch)});
  drain(stream);
  EXPECT_EQ(why, "");
  EXPECT_TRUE(!stream.failed());
  EXPECT_EQ(got, Numbers({7}));
}

}  // namespace
}  // namespace npu
