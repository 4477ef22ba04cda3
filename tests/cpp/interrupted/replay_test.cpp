// Replays that are interrupted, and pools in a process with two devices. Each
// test forks, so none may use a stream in the process itself.
#include "csrc/graph/graph.h"
#include "csrc/graph/lifetime.h"
#include "tests/cpp/graph/lanes.h"

namespace npu {
namespace {

// The number 0 stands for a new pool.
TEST_ALONE(GraphPool, IsCountedFromOne) {
  EXPECT_EQ(new_pool(), 1);
  EXPECT_EQ(new_pool(), 2);
}

TEST_ALONE(GraphPool, IsOfTheDeviceOfItsStream) {
  setenv("NPU_DISPATCH_DEVICES", "2", 1);
  Stream& stream = next_stream(1, StreamPool::kNormal);
  Stream& side = next_stream(1, StreamPool::kNormal);
  Graph graph;
  for (const bool joined : {false, true}) {
    const uint64_t pool = new_pool();
    graph.capture_begin(stream, pool, CaptureMode::kGlobal);
    EXPECT_EQ(pool_users(1, pool), 1);
    EXPECT_EQ(pool_users(0, pool), 0);
    join(stream, side);
    submit(side, kNothing, {});
    if (joined) join(side, stream);
    EXPECT_EQ(refused([&] { graph.capture_end(stream); }).empty(), joined);
    EXPECT_EQ(pool_users(1, pool), joined);
    graph.reset();
    EXPECT_EQ(pool_users(1, pool), 0);
  }
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  const uint64_t pool = graph.pool();
  graph.reset();  // in the middle of the capture
  EXPECT_EQ(pool_users(1, pool), 0);
}

void interrupt() { throw std::runtime_error("interrupted"); }

bool replay_is_interrupted(Graph& graph, Stream& stream) {
  hooks = {.check_interrupt = interrupt};
  const bool threw = !thrown([&] { replay(graph, stream); }).empty();
  hooks = {};
  return threw;
}

void fill_behind(Gate& gate, Stream& stream) {
  hold(stream, gate);
  while (stream.tail() < stream.capacity()) submit(stream, kNothing, {});
}

// Ctrl-C while the queue of the stream that it is replayed on is full, or that
// of the second stream.
void interrupted_while_full(bool first) {
  static Gate gate;
  Lanes l;
  capture_two_lanes(l.graph, l.a, l.b, l.got);
  fill_behind(gate, first ? l.a : l.b);
  EXPECT_TRUE(replay_is_interrupted(l.graph, l.a));
  if (first) {
    EXPECT_EQ(l.b.tail(), 0);
  } else {
    submit(l.a, kNothing, {});
    drain(l.a);  // does not wait for a stream that is given nothing
    EXPECT_TRUE(l.got.empty() && !l.a.failed());
  }
  gate.open();
  l.replay();
  l.settle();
  EXPECT_EQ(l.got, Numbers({1, 2, 3}));
}

TEST_ALONE(Graph, InterruptedBetweenItsStreamsLeavesNothingBehind) {
  interrupted_while_full(false);
}

TEST_ALONE(Graph, InterruptedBeforeItsFirstStreamLeavesNothingBehind) {
  interrupted_while_full(true);
}

// Else one rank would number its later collectives differently.
TEST_ALONE(Graph, InterruptedTakesNoNumbers) {
  static Gate gate;
  static uint64_t reserved = 0;
  struct Source final : NumberSource {
    Draws reserve(uint64_t count) noexcept override {
      return {0, std::exchange(reserved, reserved + count)};
    }
  };
  Stream &a = side_stream(), &b = side_stream();
  Graph one, two;
  const auto draw = [&] {
    Capture::get().draw(
        &reserved, [] { return std::make_unique<Source>(); }, 3);
    submit(a, kNothing, {});
  };
  capture(one, a, draw);
  capture(two, a, [&] {
    join(a, b);
    join(b, a);
    draw();
  });
  fill_behind(gate, a);
  const bool thrown[] = {replay_is_interrupted(one, a),
                         replay_is_interrupted(two, a)};
  EXPECT_TRUE(thrown[0] && thrown[1]);
  EXPECT_EQ(reserved, 0);
  gate.open();
  replay(one, a);
  replay(two, a);
  drain(a);
  drain(b);
  EXPECT_EQ(reserved, 6);
}

// Interrupted in launch-blocking mode, where the replay is queued.
TEST_ALONE(Graph, CountsAReplayWhoseWaitIsInterrupted) {
  static Gate gate;
  Lanes l;
  Stream& c = side_stream();
  capture_two_lanes(l.graph, l.a, l.b, l.got);
  hold(l.a, gate);
  set_launch_blocking(true);
  EXPECT_TRUE(replay_is_interrupted(l.graph, l.a));
  set_launch_blocking(false);
  replay(l.graph, c);
  EXPECT_EQ(c.tail(), 2);  // a wait for the first, which is held
  drain(c, gate);
  drain(l.a);
  EXPECT_EQ(l.got, Numbers({1, 2, 3, 1, 2, 3}));
}

}  // namespace
}  // namespace npu
