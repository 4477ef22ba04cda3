// The messages of captures and replays: what is wrong, and where.
#include <pthread.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "csrc/engine/blocking.h"
#include "csrc/engine/engine.h"
#include "csrc/graph/describe.h"
#include "csrc/graph/graph.h"
#include "csrc/interop/foreign.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::capture_two_lanes;
using check::contains;
using check::join;
using check::kAppend;
using check::kFail;
using check::kNothing;
using check::refused;
using check::replay;
using check::side_stream;
using check::submit;
using check::wait;
using check::word;

std::string line_;
struct Lines {
  Lines() {
    set_line_hooks([] { return line_; }, nullptr);
  }
  ~Lines() { set_line_hooks(nullptr, nullptr); }
};

TEST(Capture, KeepsTheLineOfEachNodeAndNamesThatOfARefusal) {
  Lines lines;
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  line_ = "a.py:1";
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  line_ = "a.py:2";
  submit(a, kNothing, {});
  line_ = "a.py:3";
  join(a, b);
  line_ = "a.py:4";
  EXPECT_TRUE(contains(refused([&] { forbid_query(a); }), "at a.py:4, on"));
  line_ = "a.py:5";
  EXPECT_TRUE(contains(refused([&] { forbid_anywhere("x", "y"); }), "a.py:5"));
  line_ = "a.py:6";
  EXPECT_TRUE(contains(refused([&] { wait(a); }), "a.py:6"));
  line_ = "a.py:7";
  EXPECT_TRUE(contains(refused([&] { graph.capture_end(b); }), "a.py:7"));
  line_ = "a.py:8";
  Graph other;
  EXPECT_TRUE(contains(
      refused([&] { other.capture_begin(b, 0, CaptureMode::kGlobal); }),
      "a.py:8"));
  line_ = "a.py:9";
  Capture::get().begin_group(a);
  EXPECT_TRUE(
      contains(refused([&] { Capture::get().begin_group(a); }), "a.py:9"));
  Capture::get().end_group(a);
  line_ = "a.py:10";
  submit(b, kNothing, {});
  join(b, a);
  line_ = "a.py:11";
  graph.capture_end(a);

  const auto nodes = describe(*graph.body());
  EXPECT_EQ(nodes.size(), 4);
  EXPECT_EQ(nodes[0].line, "a.py:2");
  EXPECT_EQ(nodes[1].line, "a.py:3");
  EXPECT_EQ(nodes[2].line, "a.py:10");
}

TEST(Capture, NamesTheThreadThatBeganItAndTheOneThatIsRefused) {
  const auto name = [] {
    char text[32] = "";
    pthread_getname_np(pthread_self(), text, sizeof text);
    return std::string(text) + " (" + std::to_string(gettid()) + ")";
  };
  Stream& stream = side_stream();
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  std::string why, other;
  std::thread([&] {
    other = name();
    why = refused([] { forbid_anywhere("x", "y"); });
  }).join();
  graph.capture_end(stream);
  EXPECT_TRUE(contains(why, "on thread " + other + ","));
  EXPECT_TRUE(contains(why, "by thread " + name() + " in mode"));
}

TEST(Capture, NamesTheLineOfWhatWasNotJoined) {
  Lines lines;
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  join(a, b);
  line_ = "b.py:1";
  submit(b, kNothing, {});
  line_ = "b.py:2";
  const std::string why = refused([&] { graph.capture_end(a); });
  EXPECT_TRUE(contains(why, "last: test::nothing at b.py:1)"));
  EXPECT_TRUE(contains(why, "at b.py:2, on thread"));
}

// A wait is a node, too, and must be joined even if it is the only one.
TEST(Capture, NamesAWaitThatWasNotJoined) {
  Lines lines;
  line_ = "";
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  submit(a, kNothing, {});
  join(a, b);
  EXPECT_TRUE(
      contains(refused([&] { graph.capture_end(a); }), "last: a wait)"));
}

TEST(Capture, ForbidsByModeAndThread) {
  Stream& stream = side_stream();
  struct Case {
    CaptureMode mode;
    const char* name;
    bool elsewhere;
  };
  for (const Case c : {Case{CaptureMode::kGlobal, "'global'", true},
                       Case{CaptureMode::kThreadLocal, "'thread_local'", false},
                       Case{CaptureMode::kRelaxed, "'relaxed'", false}}) {
    Graph graph;
    graph.capture_begin(stream, 0, c.mode);
    std::string elsewhere;
    std::thread([&] {
      elsewhere = refused([] { forbid_anywhere("x", "y"); });
    }).join();
    const std::string here = refused([] { forbid_anywhere("x", "y"); });
    graph.capture_end(stream);
    EXPECT_TRUE(contains(here, c.name));
    EXPECT_EQ(!elsewhere.empty(), c.elsewhere);
  }
}

TEST(Capture, SaysWhichWaitItRefuses) {
  Stream& stream = side_stream();
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  const std::pair<WaitReason, const char*> all[] = {
      {WaitReason::kItem, "reading a value"},
      {WaitReason::kCopy, "a blocking copy"},
      {WaitReason::kStreamSync, "waiting for a stream"},
      {WaitReason::kEventSync, "waiting for an event"},
      {WaitReason::kDeviceSync, "torch.npu.synchronize()"},
      {WaitReason::kOperator, "an operator that waits"},
      {WaitReason::kAllocator, "returning memory"},
      {WaitReason::kExit, "waiting for the device"}};
  for (const auto& [reason, text] : all)
    EXPECT_TRUE(contains(refused([&] { host_wait(stream, 1, reason); }), text));
  graph.capture_end(stream);
}

TEST(Graph, NamesTheNodeThatFailed) {
  Lines lines;
  Stream& stream = side_stream();
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  line_ = "";
  submit(stream, kNothing, {});
  submit(stream, kFail, {NPU_INDEX_ERROR});
  line_ = "c.py:3";
  submit(stream, kFail, {NPU_INDEX_ERROR});
  graph.capture_end(stream);
  replay(graph, stream);
  wait(stream);
  EXPECT_EQ(stream.error()->code, int(NPU_INDEX_ERROR));
  EXPECT_EQ(stream.error()->op, "graph replay");
  EXPECT_EQ(stream.error()->text, "node 1, test::fail: asked to");
  stream.clear_error();

  Graph with_line;
  with_line.capture_begin(stream, 0, CaptureMode::kGlobal);
  submit(stream, kFail, {NPU_INDEX_ERROR});
  with_line.capture_end(stream);
  replay(with_line, stream);
  wait(stream);
  EXPECT_EQ(stream.error()->text,
            "node 0, test::fail, captured at c.py:3: asked to");
  stream.clear_error();
}

TEST(Graph, CannotBeReplayedInACaptureOfItsOwnStream) {
  Stream& stream = side_stream();
  Graph graph, other;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  submit(stream, kNothing, {});
  graph.capture_end(stream);
  other.capture_begin(stream, 0, CaptureMode::kGlobal);
  EXPECT_TRUE(
      contains(refused([&] { replay(graph, stream); }), "cannot be captured"));
  other.capture_end(stream);
  EXPECT_TRUE(replay(graph, stream));
  wait(stream);
}

TEST(Graph, OfAFailedStreamIsNotReplayed) {
  Stream &a = side_stream(), &b = side_stream();
  std::vector<uint64_t> got;
  Graph graph;
  capture_two_lanes(graph, a, b, got);
  submit(b, kFail, {NPU_ERROR});
  wait(b);
  const uint64_t before = a.tail();
  Stream* failed = nullptr;
  EXPECT_TRUE(!graph.replay(a, failed));
  EXPECT_TRUE(failed == &b);
  wait(a);
  EXPECT_EQ(a.tail() - before, a.retired().value() - before);
  EXPECT_TRUE(got.empty());
  b.clear_error();
  EXPECT_TRUE(replay(graph, a));
  wait(a);
  wait(b);
  EXPECT_TRUE(got == std::vector<uint64_t>({1, 2, 3}));
}

TEST(Graph, IsDoneWhenItsReplayReturnsWhereLaunchesBlock) {
  Stream &a = side_stream(), &b = side_stream();
  std::vector<uint64_t> got;
  Graph one, two;
  one.capture_begin(a, 0, CaptureMode::kGlobal);
  submit(a, kAppend, {word(&got), 0});
  one.capture_end(a);
  capture_two_lanes(two, a, b, got);
  set_thread_launch_blocking(true);
  replay(one, a);
  EXPECT_EQ(got.size(), 1);
  replay(two, a);
  EXPECT_EQ(got.size(), 4);
  set_thread_launch_blocking(false);
  wait(b);
}

struct State {
  int runs = 0, releases = 0;
};

TEST(Graph, RunsForeignWorkAtEachReplayAndReleasesItAtItsEnd) {
  Stream& stream = side_stream();
  State state;
  const ForeignWork work{
      "test::foreign",
      [](void* state, uint64_t, npu_failure&) {
        ++static_cast<State*>(state)->runs;
        return int(NPU_OK);
      },
      [](void* state) { ++static_cast<State*>(state)->releases; },
      &state,
      {}};
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  EXPECT_TRUE(submit_foreign(stream, work));
  std::string why;
  std::thread([&] {
    why = refused([&] { submit_foreign(stream, work); });
  }).join();
  EXPECT_TRUE(contains(why, "only the thread that captures"));
  EXPECT_TRUE(state.runs == 0 && state.releases == 1);  // the refused one's
  graph.capture_end(stream);
  for (int i = 0; i < 3; ++i) replay(graph, stream);
  wait(stream);
  EXPECT_TRUE(state.runs == 3 && state.releases == 1);
  // What other streams still run might use the graph.
  synchronize_device(0, WaitReason::kDeviceSync);
  graph.reset();
  EXPECT_EQ(state.releases, 2);
}

}  // namespace
}  // namespace npu
