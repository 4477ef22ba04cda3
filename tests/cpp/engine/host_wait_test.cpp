#include "csrc/taskqueue/host_wait.h"

#include <stdexcept>
#include <thread>
#include <vector>

#include "csrc/stats/segment.h"
#include "csrc/taskqueue/engine.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/foreign.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::Gate;
using check::in_child;
using check::kAppend;
using check::kGate;
using check::submit;
using check::word;

std::atomic<int> released{0}, held_again{0}, asked{0};
Gate* gate_to_open = nullptr;

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

// Queues a gate that only the hooks (or the test) open.
void block(Stream& stream, Gate& gate) {
  submit(stream, kGate, {word(&gate)});
  gate.wait_until_entered();
}

TEST(HostWait, CallsTheHooksAroundTheSleepAndCountsTheReason) {
  const auto ended = in_child([] {
    static Gate gate;
    gate_to_open = &gate;
    Stream& stream = current_stream(0);
    block(stream, gate);
    set_host_wait_hooks({release, reacquire, open_the_gate, nullptr, nullptr});

    host_wait(stream, stream.tail(), WaitReason::kItem);

    const DeviceBlock& block = segment().devices[0];
    if (!asked || !released || released != held_again) return 1;
    if (block.waits[int(WaitReason::kItem)] != 1) return 2;
    if (block.wait_ns[int(WaitReason::kItem)] == 0) return 3;
    host_wait(stream, stream.tail(), WaitReason::kItem);
    return block.waits[int(WaitReason::kItem)] == 1 ? 0 : 4;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

void refuse(const HostWait& w) {
  if (w.pending != 1 || std::string(w.op) != "item")
    throw std::logic_error("told the wrong wait");
  throw std::runtime_error("refused");
}

TEST(HostWait, CanBeRefusedWhileItIsWatched) {
  const auto ended = in_child([] {
    static Gate gate;
    Stream& stream = current_stream(0);
    block(stream, gate);
    set_host_wait_hooks({nullptr, nullptr, nullptr, refuse, nullptr});
    watch_host_waits(true);
    try {
      // Would never end.
      host_wait(stream, stream.tail(), WaitReason::kItem, "item");
      return 1;
    } catch (const std::runtime_error&) {
    }
    watch_host_waits(false);
    gate.open();
    host_wait(stream, stream.tail(), WaitReason::kItem, "item");
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

std::vector<HostWait> told;

TEST(HostWait, IsReportedWhenItTookTimeAndAlwaysWhileWatched) {
  const auto ended = in_child([] {
    static Gate gate;
    gate_to_open = &gate;
    Stream& stream = current_stream(0);
    block(stream, gate);
    set_host_wait_hooks({nullptr, nullptr, open_the_gate, nullptr,
                         [](const HostWait& w) { told.push_back(w); }});
    host_wait(stream, stream.tail(), WaitReason::kCopy, "copy");
    if (told.size() != 1 || told[0].ns == 0 || told[0].pending != 1) return 1;
    host_wait(stream, stream.tail(), WaitReason::kCopy, "copy");
    if (told.size() != 1) return 2;
    watch_host_waits(true);
    host_wait(stream, stream.tail(), WaitReason::kCopy, "copy");
    if (told.size() != 2 || told[1].ns != 0 || told[1].pending != 0) return 3;
    return told[1].reason == WaitReason::kCopy ? 0 : 4;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST(HostWait, LeavesEverythingUsableWhenInterrupted) {
  const auto ended = in_child([] {
    static Gate gate;
    Stream& stream = current_stream(0);
    block(stream, gate);
    set_host_wait_hooks({release, reacquire, interrupt, nullptr, nullptr});

    bool thrown = false;
    try {
      host_wait(stream, stream.tail(), WaitReason::kStreamSync);
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    if (!thrown || released != held_again) return 1;

    set_host_wait_hooks({});
    gate.open();
    std::vector<uint64_t> got;
    submit(stream, kAppend, {word(&got), 1});
    host_wait(stream, stream.tail(), WaitReason::kStreamSync);
    return got.size() == 1 ? 0 : 2;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST(HostWait, LeavesAFullRingUnchangedWhenInterrupted) {
  const auto ended = in_child([] {
    Gate gate;
    std::vector<uint64_t> got;
    Stream stream(0, 0, 0, StreamMode::kQueued);
    block(stream, gate);
    for (uint64_t i = 1; i < stream.capacity(); ++i)
      submit(stream, kAppend, {word(&got), i}, 40);
    set_host_wait_hooks({release, reacquire, interrupt, nullptr, nullptr});

    const uint64_t before = stream.tail();
    try {
      submit(stream, kAppend, {word(&got), 0}, 40);
      return 1;
    } catch (const std::runtime_error&) {
    }
    if (stream.tail() != before) return 2;

    set_host_wait_hooks({});
    gate.open();
    submit(stream, kAppend, {word(&got), before}, 40);
    host_wait(stream, stream.tail(), WaitReason::kStreamSync);
    return got.size() == before && got.back() == before ? 0 : 3;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

// In a child: the line that failed, as far as an exit code can say it.
#define CHECK(condition) \
  if (!(condition)) return __LINE__ % 250 + 1

TEST(HostWait, IsNotAskedOfAnEventThatIsRecordedWhereLaunchesBlock) {
  const auto ended = in_child([] {
    static Gate gate;
    Stream& stream = current_stream(0);
    block(stream, gate);
    set_launch_blocking(true);
    set_host_wait_hooks({release, reacquire, interrupt, nullptr, nullptr});

    Event event(Timing::kOn);
    CHECK(event.record(stream));
    CHECK(asked == 0 && event.recorded() && event.number() == 2);
    CHECK(!event.done());

    set_host_wait_hooks({});
    gate.open();
    event.synchronize();
    CHECK(event.time_ns() != 0);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST(HostWait, OfALaunchThatBlocksLeavesForeignWorkQueuedWhenInterrupted) {
  const auto ended = in_child([] {
    static Gate gate;
    static int runs = 0, releases = 0;
    Stream& stream = current_stream(0);
    block(stream, gate);
    set_launch_blocking(true);
    set_host_wait_hooks({release, reacquire, interrupt, nullptr, nullptr});
    bool thrown = false;
    try {
      submit_foreign(stream, {"work",
                              [](void*, npu_failure&) {
                                ++runs;
                                return int(NPU_OK);
                              },
                              [](void*) { ++releases; },
                              nullptr,
                              {}});
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    CHECK(thrown && runs == 0 && releases == 0);
    set_host_wait_hooks({});
    gate.open();
    host_wait(stream, stream.tail(), WaitReason::kStreamSync);
    CHECK(runs == 1 && releases == 1);
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

// Legal where launches do not block, so legal where they do.
TEST(HostWait, IsNotAskedOfATaskThatLaunchesAnotherOnItsStream) {
  static constexpr npu_kernel kLaunches{
      [](const npu_kernel*, const uint64_t* words, npu_failure* failure) {
        try {
          submit(*reinterpret_cast<Stream*>(words[0]), kAppend,
                 {words[1], words[2]});
        } catch (const std::exception& e) {
          snprintf(failure->text, sizeof failure->text, "%s", e.what());
          return int(NPU_ERROR);
        }
        return int(NPU_OK);
      },
      "test::launches", nullptr, 0};
  const auto ended = in_child([] {
    Stream& stream = current_stream(0);
    set_launch_blocking(true);
    std::vector<uint64_t> got;
    submit(stream, kLaunches, {word(&stream), word(&got), 7});
    host_wait(stream, stream.tail(), WaitReason::kStreamSync);
    CHECK(!stream.failed());
    CHECK(got == std::vector<uint64_t>{7});
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

}  // namespace
}  // namespace npu
