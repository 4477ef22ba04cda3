// Replays that are interrupted. Each test forks, so no test of this executable
// may use a stream in the process itself.
#include <vector>

#include "csrc/engine/blocking.h"
#include "csrc/engine/engine.h"
#include "csrc/graph/graph.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::capture_two_lanes;
using check::Gate;
using check::in_child;
using check::kGate;
using check::replay;
using check::side_stream;
using check::submit;
using check::wait;
using check::word;

void interrupt() { throw std::runtime_error("interrupted"); }

bool replay_is_interrupted(Graph& graph, Stream& stream) {
  set_host_wait_hooks({nullptr, nullptr, interrupt, nullptr, nullptr});
  bool thrown = false;
  try {
    replay(graph, stream);
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  set_host_wait_hooks({});
  return thrown;
}

void fill_behind(Gate& gate, Stream& stream) {
  submit(stream, kGate, {word(&gate)});
  gate.wait_until_entered();
  while (stream.tail() < stream.capacity()) submit(stream, check::kNothing, {});
}

// Ctrl-C while the queue of the second stream is full.
TEST(Graph, InterruptedBetweenItsStreamsLeavesNothingBehind) {
  const auto ended = in_child([] {
    static Gate gate;
    std::vector<uint64_t> got;
    Stream &a = side_stream(), &b = side_stream();
    Graph graph;
    capture_two_lanes(graph, a, b, got);
    fill_behind(gate, b);
    const bool thrown = replay_is_interrupted(graph, a);
    if (!thrown) return 1;
    submit(a, check::kNothing, {});
    wait(a);  // does not wait for a stream that is given nothing
    if (!got.empty() || a.failed()) return 2;
    gate.open();
    replay(graph, a);
    wait(a);
    wait(b);
    return got == std::vector<uint64_t>({1, 2, 3}) ? 0 : 3;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

// Ctrl-C while the queue of the stream that it is replayed on is full.
TEST(Graph, InterruptedBeforeItsFirstStreamLeavesNothingBehind) {
  const auto ended = in_child([] {
    static Gate gate;
    std::vector<uint64_t> got;
    Stream &a = side_stream(), &b = side_stream();
    Graph graph;
    capture_two_lanes(graph, a, b, got);
    fill_behind(gate, a);
    const bool thrown = replay_is_interrupted(graph, a);
    if (!thrown || b.tail() != 0) return 1;
    gate.open();
    replay(graph, a);
    wait(a);
    wait(b);
    return got == std::vector<uint64_t>({1, 2, 3}) ? 0 : 2;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

// Interrupted in launch-blocking mode, where the replay is queued.
TEST(Graph, CountsAReplayWhoseWaitIsInterrupted) {
  const auto ended = in_child([] {
    static Gate gate;
    std::vector<uint64_t> got;
    Stream &a = side_stream(), &b = side_stream(), &c = side_stream();
    Graph graph;
    capture_two_lanes(graph, a, b, got);
    submit(a, kGate, {word(&gate)});
    gate.wait_until_entered();
    set_launch_blocking(true);
    const bool thrown = replay_is_interrupted(graph, a);
    set_launch_blocking(false);
    if (!thrown) return 1;
    replay(graph, c);
    if (c.tail() != 2) return 3;  // a wait for the first, which is held
    gate.open();
    wait(c);
    wait(a);
    return got == std::vector<uint64_t>({1, 2, 3, 1, 2, 3}) ? 0 : 2;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

}  // namespace
}  // namespace npu
