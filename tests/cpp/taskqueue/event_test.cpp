#include "csrc/taskqueue/event.h"

#include <memory>
#include <thread>
#include <vector>

#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::Gate;
using check::kAppend;
using check::kGate;
using check::submit;
using check::word;

TEST(Event, IsDoneWhenNeverRecorded) {
  Event event(Timing::kOff);
  EXPECT_TRUE(!event.recorded());
  EXPECT_TRUE(event.done());
  event.synchronize();
}

TEST(Event, MarksTheTailAndCostsNoTask) {
  std::vector<uint64_t> got;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  submit(stream, kAppend, {word(&got), 1});
  Event event(Timing::kOff);

  EXPECT_TRUE(event.record(stream));

  EXPECT_EQ(event.number(), 1);
  EXPECT_EQ(stream.tail(), 1);
  EXPECT_TRUE(event.stream() == &stream);
}

TEST(Event, ShowsItsWaiterEveryEarlierWrite) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  for (uint64_t i = 0; i < 200; ++i) {
    std::vector<uint64_t> got;
    submit(stream, kAppend, {word(&got), i});
    Event event(Timing::kOff);
    event.record(stream);

    event.synchronize();

    EXPECT_TRUE(event.done());
    EXPECT_EQ(got.size(), 1);
  }
}

TEST(Event, IsNotDoneBeforeTheWorkItMarks) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  Event event(Timing::kOff);
  event.record(stream);

  gate.wait_until_entered();
  EXPECT_TRUE(!event.done());
  gate.open();
  event.synchronize();
  EXPECT_TRUE(event.done());
}

TEST(Event, OrdersTwoStreamsBothWays) {
  constexpr uint64_t kRounds = 500;
  Stream a(0, 0, 0, StreamMode::kQueued, 16);
  Stream b(0, 1, 0, StreamMode::kQueued, 16);
  std::vector<uint64_t> got;  // plain: TSan sees a missing order
  Event event(Timing::kOff);

  for (uint64_t i = 0; i < kRounds; ++i) {
    submit(a, kAppend, {word(&got), 2 * i});
    event.record(a);
    b.wait_for(*event.stream(), event.number());
    submit(b, kAppend, {word(&got), 2 * i + 1});
    event.record(b);
    a.wait_for(*event.stream(), event.number());
  }
  event.synchronize();

  EXPECT_EQ(got.size(), 2 * kRounds);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i);
}

TEST(Event, NotesTheTimeWhenItsTurnComes) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Event before(Timing::kOn), after(Timing::kOn);
  Gate gate;
  before.record(stream);
  submit(stream, kGate, {word(&gate)});
  after.record(stream);

  gate.wait_until_entered();
  const uint64_t opened = now_ns();
  gate.open();
  after.synchronize();

  EXPECT_TRUE(before.time_ns() <= opened);
  EXPECT_TRUE(after.time_ns() >= opened);
}

TEST(Event, MayDieBeforeItsTaskRuns) {
  Gate gate;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  submit(stream, kGate, {word(&gate)});
  auto event = std::make_unique<Event>(Timing::kOn);
  event->record(stream);
  event.reset();
  gate.open();
}

// An event counts as pending on the device where it was last recorded.
TEST(Event, IsPendingOnOneDevice) {
  Stream first(0, 0, 0, StreamMode::kQueued);
  Stream second(1, 0, 0, StreamMode::kQueued);
  const auto pending = [](int device) {
    return segment().devices[device].events_pending.load();
  };
  const uint64_t before[] = {pending(0), pending(1)};
  {
    Event event(Timing::kOff);
    event.record(first);
    EXPECT_TRUE(pending(0) == before[0] + 1 && pending(1) == before[1]);
    event.record(second);
    EXPECT_TRUE(pending(0) == before[0] && pending(1) == before[1] + 1);
  }
  EXPECT_TRUE(pending(0) == before[0] && pending(1) == before[1]);
}

TEST(Event, CanBeRecordedAgain) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Event event(Timing::kOn);
  event.record(stream);
  event.synchronize();
  const uint64_t first = event.time_ns();

  event.record(stream);
  event.synchronize();

  EXPECT_TRUE(event.time_ns() >= first);
  EXPECT_EQ(event.number(), 2);
}

}  // namespace
}  // namespace npu
