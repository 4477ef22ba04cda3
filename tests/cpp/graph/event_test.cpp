// Events that are recorded in a capture.
#include "csrc/taskqueue/event.h"

#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/graph/graph.h"
#include "tests/cpp/check.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::contains;
using check::kNothing;
using check::refused;
using check::replay;
using check::side_stream;
using check::submit;
using check::wait;

TEST(CapturedEvent, IsDoneOnceAReplayHasReachedIt) {
  Stream& stream = side_stream();
  Event timed(Timing::kOn), plain(Timing::kOff);
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kRelaxed);
  EXPECT_TRUE(timed.record(stream));
  submit(stream, kNothing, {});
  EXPECT_TRUE(plain.record(stream));
  for (const Event* event : {&timed, &plain}) {
    EXPECT_TRUE(event->number() >= kCapturedNumber);
    EXPECT_TRUE(contains(refused([&] { (void)event->done(); }), "an event"));
    EXPECT_TRUE(contains(refused([&] { event->synchronize(); }), "an event"));
  }
  graph.capture_end(stream);

  EXPECT_TRUE(plain.done());
  EXPECT_TRUE(!timed.done());
  timed.synchronize();  // returns: the replay's stream is to be waited for
  uint64_t last = 0;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(replay(graph, stream));
    wait(stream);
    EXPECT_TRUE(timed.done());
    EXPECT_TRUE(timed.time_ns() > last);
    last = timed.time_ns();
  }
}

// A graph keeps the time of an event that was destroyed, and an event the time
// of a graph that was.
TEST(CapturedEvent, AndItsGraphMayGoInAnyOrder) {
  Stream& stream = side_stream();
  Event stays(Timing::kOn);
  Graph graph;
  {
    Event goes(Timing::kOn);
    graph.capture_begin(stream, 0, CaptureMode::kGlobal);
    goes.record(stream);
    stays.record(stream);
    graph.capture_end(stream);
  }
  EXPECT_TRUE(replay(graph, stream));
  wait(stream);
  graph.reset();
  EXPECT_TRUE(stays.time_ns() > 0);
}

}  // namespace
}  // namespace npu
