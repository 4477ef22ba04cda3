#include "csrc/taskqueue/host_wait.h"

#include <stdlib.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/engine/blocking.h"
#include "csrc/engine/engine.h"
#include "csrc/interop/foreign.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/stream.h"
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

// Queues a gate that only the hooks, or the test, open.
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
      // This wait would never end.
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

// Asked only while the task is not done; no is taken at its word.
TEST(HostWait, GoesOnForAsLongAsItIsTold) {
  const auto ended = in_child([] {
    static Gate gate;
    Stream& stream = current_stream(0);
    block(stream, gate);
    const auto waited = [&](bool goes_on) {
      return host_wait_while(stream, stream.tail(), WaitReason::kStreamSync,
                             [=] {
                               if (goes_on) gate.open();
                               return goes_on;
                             });
    };
    if (waited(false)) return 1;
    if (stream.retired().value() == stream.tail()) return 2;
    if (!waited(true)) return 3;
    return waited(false) ? 0 : 4;  // done already
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

// A wait for tasks that are done already waits for none.
TEST(HostWait, TellsHowManyTasksItWaitsFor) {
  const auto ended = in_child([] {
    static Gate gate;
    static std::vector<uint64_t> before;
    gate_to_open = &gate;
    Stream& stream = current_stream(0);
    for (int i = 0; i < 5; ++i) submit(stream, check::kNothing, {});
    host_wait(stream, 5, WaitReason::kStreamSync);
    block(stream, gate);
    submit(stream, check::kNothing, {});
    set_host_wait_hooks({nullptr, nullptr, open_the_gate,
                         [](const HostWait& w) { before.push_back(w.pending); },
                         [](const HostWait& w) { told.push_back(w); }});
    watch_host_waits(true);
    host_wait(stream, 6, WaitReason::kCopy, "copy");
    if (before != std::vector<uint64_t>{2}) return 1;
    if (told.size() != 1 || told[0].pending != 1) return 2;
    host_wait(stream, 3, WaitReason::kCopy, "copy");
    return told.size() == 2 && told[1].pending == 0 ? 0 : 3;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

// There are limits for synchronize() of a device and of a stream; a wait that
// is over, or of another kind, has none.
TEST(HostWait, EndsAfterTheTimeThatTheEnvironmentGivesIt) {
  const auto ended = in_child([] {
    setenv("ACL_STREAM_TIMEOUT", "1", 1);        // milliseconds
    setenv("ACL_DEVICE_SYNC_TIMEOUT", "-1", 1);  // seconds; none
    static Gate gate;
    gate_to_open = &gate;
    Stream& stream = current_stream(0);
    block(stream, gate);
    const uint64_t began = now_ns();
    bool timed_out = false;
    try {
      host_wait(stream, stream.tail(), WaitReason::kStreamSync);
    } catch (const std::runtime_error& e) {
      timed_out =
          std::string(e.what()).find("ACL_STREAM_TIMEOUT") != std::string::npos;
    }
    const uint64_t took = now_ns() - began;
    if (!timed_out || took < 1'000'000) return 1;
    set_host_wait_hooks({nullptr, nullptr,
                         [] {
                           if (++asked == 3) gate_to_open->open();
                         },
                         nullptr, nullptr});
    const auto reason = WaitReason::kDeviceSync;
    host_wait(stream, stream.tail(), reason);  // three times 50 ms
    return asked >= 3 ? 0 : 2;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST(HostWait, OfADeviceEndsAfterItsOwnTime) {
  const auto ended = in_child([] {
    setenv("ACL_DEVICE_SYNC_TIMEOUT", "1", 1);  // second
    static Gate gate;
    gate_to_open = &gate;
    Stream& stream = current_stream(0);
    block(stream, gate);
    const uint64_t began = now_ns();
    try {
      host_wait(stream, stream.tail(), WaitReason::kDeviceSync);
      return 1;
    } catch (const std::runtime_error&) {
    }
    if (now_ns() - began < 1'000'000'000) return 2;
    gate.open();
    host_wait(stream, stream.tail(), WaitReason::kItem);  // has no limit
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

// The count of waits rises when it begins and their time when it ends;
// afterwards nothing says any longer that it waits.
TEST(HostWait, ThatIsGivenUpIsCountedToItsEnd) {
  const auto ended = in_child([] {
    static Gate gate;
    Stream& stream = current_stream(0);
    block(stream, gate);
    set_host_wait_hooks({nullptr, nullptr, interrupt, nullptr, nullptr});
    try {
      host_wait(stream, stream.tail(), WaitReason::kItem);
      return 1;
    } catch (const std::runtime_error&) {
    }
    const DeviceBlock& block = segment().devices[0];
    const int r = int(WaitReason::kItem);
    if (block.waits[r] != 1 || block.wait_ns[r] == 0) return 2;
    if (block.waiting[r] != 0 || block.waiting_from[r] != 0) return 3;
    if (stream.block().drains[r] != 0) return 4;
    set_host_wait_hooks({});
    gate.open();
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

std::vector<HostWait> full_;

TEST(HostWait, ForSpaceIsToldAndCountedByItsStream) {
  const auto ended = in_child([] {
    static Gate gate;
    gate_to_open = &gate;
    Stream stream(0, 0, 0, StreamMode::kQueued, 16);
    block(stream, gate);
    while (stream.tail() < 16) submit(stream, check::kNothing, {});
    set_host_wait_hooks({nullptr, nullptr, open_the_gate, nullptr,
                         [](const HostWait& w) { full_.push_back(w); }});
    submit(stream, check::kNothing, {});
    if (full_.size() != 1 || full_[0].reason != kFullQueue) return 1;
    if (full_[0].pending != 16 || full_[0].ns == 0) return 2;
    const StreamBlock& block = stream.block();
    if (block.full_waits != 1 || block.full_wait_ns == 0) return 3;
    return block.full_waiting == 0 ? 0 : 4;
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

// For use in a child: returns the number of the line that failed, as far as an
// exit code can hold it.
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
                              [](void*, uint64_t, npu_failure&) {
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

// This is legal where launches do not block, so it must be where they do.
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
