// A graph's pool, the graph's end, and what observers are told of its replays.
#include <sched.h>

#include <memory>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/profiling.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/lifetime.h"
#include "csrc/observe/observer.h"
#include "csrc/observe/profile.h"
#include "csrc/stats/segment.h"
#include "tests/cpp/check.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::capture_two_lanes;
using check::contains;
using check::Gate;
using check::join;
using check::kAppend;
using check::kGate;
using check::kNothing;
using check::refused;
using check::replay;
using check::side_stream;
using check::submit;
using check::wait;
using check::word;

void capture_nothing(Graph& graph, Stream& stream, uint64_t pool = 0) {
  graph.capture_begin(stream, pool, CaptureMode::kGlobal);
  submit(stream, kNothing, {});
  graph.capture_end(stream);
}

// A graph has left its pool when all streams have passed its end: what the
// tests before have left in theirs must not delay that.
Stream& stream_of_an_idle_device() {
  synchronize_device(0, WaitReason::kDeviceSync);
  return side_stream();
}

bool has_no_pool(const Graph& graph) {
  try {
    graph.pool();
  } catch (const std::runtime_error& e) {
    return contains(e.what(), "pool()");
  }
  return false;
}

TEST(GraphPool, IsItsOwnOrTheOneThatIsNamed) {
  Stream& stream = stream_of_an_idle_device();
  const uint64_t pool = new_pool();
  EXPECT_EQ(new_pool(), pool + 1);
  Graph own, named, other;
  EXPECT_TRUE(has_no_pool(own));
  capture_nothing(own, stream);
  capture_nothing(named, stream, pool);
  capture_nothing(other, stream, pool);
  EXPECT_EQ(own.pool(), pool + 2);
  EXPECT_EQ(named.pool(), pool);
  EXPECT_EQ(pool_users(0, own.pool()), 1);
  EXPECT_EQ(pool_users(0, pool), 2);
  EXPECT_EQ(pool_users(0, pool + 1), 0);
  named.reset();
  EXPECT_TRUE(has_no_pool(named));
  EXPECT_EQ(pool_users(0, pool), 1);
  EXPECT_TRUE(contains(
      refused([&] { other.capture_begin(stream, 0, CaptureMode::kGlobal); }),
      "captured already"));
}

TEST(GraphPool, KeepsWhatItsGraphsNeedUntilTheLastHasLeft) {
  Stream& stream = stream_of_an_idle_device();
  const uint64_t pool = new_pool();
  int released = 0;
  Graph graph, other;
  capture_nothing(graph, stream, pool);
  capture_nothing(other, stream, pool);
  for (int i = 0; i < 2; ++i) keep_with_pool(0, pool, [&] { ++released; });
  graph.reset();
  EXPECT_EQ(released, 0);
  other.reset();
  EXPECT_EQ(released, 2);
  EXPECT_EQ(pool_users(0, pool), 0);
  capture_nothing(graph, stream, pool);
  graph.reset();
  EXPECT_EQ(released, 2);
}

TEST(GraphPool, IsLeftByACaptureThatFailsOrIsGivenUp) {
  Stream &a = stream_of_an_idle_device(), &b = side_stream();
  const uint64_t pool = new_pool();
  Graph graph;
  graph.capture_begin(a, pool, CaptureMode::kGlobal);
  EXPECT_EQ(pool_users(0, pool), 1);
  EXPECT_TRUE(Capture::get().is_of(&graph));
  EXPECT_EQ(Capture::get().pool(), pool);
  join(a, b);
  submit(b, kNothing, {});
  EXPECT_TRUE(!refused([&] { graph.capture_end(a); }).empty());
  EXPECT_EQ(pool_users(0, pool), 0);
  EXPECT_TRUE(has_no_pool(graph) && !graph.capturing());
  EXPECT_TRUE(!Capture::get().under_way());
  EXPECT_TRUE(contains(refused([&] { Capture::get().pool(); }), "just ended"));

  graph.capture_begin(a, pool, CaptureMode::kGlobal);
  Capture::get().abandon(&a);  // of nobody who captures
  EXPECT_TRUE(Capture::get().under_way());
  graph.reset();
  EXPECT_TRUE(!Capture::get().under_way() && !graph.capturing());
  EXPECT_EQ(pool_users(0, pool), 0);
  Capture::get().abandon(&graph);  // nothing is under way
}

// Destroys a graph whose replay still waits behind the gate; returns its pool.
uint64_t pool_of_a_queued_replay(Stream& stream, Gate& gate) {
  Graph graph;
  capture_nothing(graph, stream);
  submit(stream, kGate, {word(&gate)});
  EXPECT_TRUE(replay(graph, stream));
  return graph.pool();
}

TEST(GraphPool, IsLeftWhenTheLastReplayIsDone) {
  Stream& stream = stream_of_an_idle_device();
  Gate gate;
  const uint64_t pool = pool_of_a_queued_replay(stream, gate);
  Graph other;
  capture_nothing(other, side_stream());
  EXPECT_EQ(pool_users(0, pool), 1);
  gate.open();
  wait(stream);
  EXPECT_EQ(pool_users(0, pool), 1);
  other.reset();  // whoever comes next looks
  EXPECT_EQ(pool_users(0, pool), 0);
}

TEST(GraphPool, IsLookedAfterByTheNextCapture) {
  Stream& stream = stream_of_an_idle_device();
  Gate gate;
  const uint64_t pool = pool_of_a_queued_replay(stream, gate);
  gate.open();
  wait(stream);
  Graph other;
  other.capture_begin(stream, 0, CaptureMode::kGlobal);
  EXPECT_EQ(pool_users(0, pool), 0);
  other.capture_end(stream);
}

TEST(Graph, WithoutACaptureCannotBeReplayed) {
  Graph graph;
  Stream& stream = side_stream();
  EXPECT_TRUE(graph.one_stream() && graph.body() == nullptr);
  EXPECT_THROWS(replay(graph, stream), std::runtime_error);
}

TEST(Graph, CountsItsReplays) {
  Stream &a = side_stream(), &b = side_stream();
  std::vector<uint64_t> got;
  Graph one, two;
  capture_nothing(one, a);
  capture_two_lanes(two, a, b, got);
  const Counter& replays = segment().devices[0].graph_replays;
  const uint64_t before = replays.load();
  for (Graph* graph : {&one, &two}) replay(*graph, a);
  wait(a);
  EXPECT_EQ(replays.load(), before + 2);
}

// One replay of a graph runs at a time, whatever the streams.
TEST(Graph, OnAnotherStreamWaitsForItsReplayBefore) {
  Stream &a = side_stream(), &b = side_stream();
  std::vector<uint64_t> got, beside;
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  submit(a, kAppend, {word(&got), 1});
  graph.capture_end(a);
  for (int round = 0; round < 2; ++round) {
    Gate gate;
    submit(a, kGate, {word(&gate)});
    replay(graph, a);
    const uint64_t before = b.tail();
    replay(graph, b);
    EXPECT_EQ(b.tail(), before + 2);  // a wait, and the replay
    replay(graph, b);
    EXPECT_EQ(b.tail(), before + 3);
    submit(a, kAppend, {word(&beside), 2});  // not before b's
    EXPECT_TRUE(b.retired().value() < b.tail());
    gate.open();
    wait(a);
    wait(b);
  }
  EXPECT_EQ(got.size(), 6);
  EXPECT_EQ(beside.size(), 2);
}

struct Source final : NumberSource {
  explicit Source(uint64_t seed, Stream* failing = nullptr)
      : seed(seed), failing(failing) {}
  Draws reserve(uint64_t count) override {
    if (failing) {
      submit(*failing, check::kFail, {NPU_ERROR});
      wait(*failing);
    }
    return {seed, count};
  }
  uint64_t seed;
  Stream* failing;
};

// words: vector, seed, offset
int run_note(const npu_kernel*, const uint64_t* words, npu_failure*) {
  reinterpret_cast<std::vector<uint64_t>*>(words[0])->push_back(words[1]);
  return NPU_OK;
}
npu_kernel kNote{run_note, "test::note", nullptr, 0};

void draw(Stream& stream, std::vector<uint64_t>& got, const void* id,
          uint64_t seed, Stream* failing = nullptr) {
  const Draws at = Capture::get().draw(
      id, [&] { return std::make_unique<Source>(seed, failing); }, 1);
  submit(stream, kNote, {word(&got), at.seed, at.offset});
}

struct OwnKernels {
  OwnKernels() {
    set_own_kernel_hook([](const npu_kernel* kernel) {
      if (kernel != &kNote) return OwnKernel{nullptr, nullptr, -1};
      return OwnKernel{&kNote, [](npu_kernel*) {}, 1};
    });
  }
  ~OwnKernels() { set_own_kernel_hook(nullptr); }
};

TEST(Graph, DrawsFromManySourcesAndFromThoseOfItsOwnCapture) {
  OwnKernels own;
  Stream& stream = side_stream();
  const int ids[6] = {};
  for (int round = 0; round < 2; ++round) {
    std::vector<uint64_t> got, expected;
    Graph graph;
    graph.capture_begin(stream, 0, CaptureMode::kGlobal);
    for (uint64_t i = 0; i < 6; ++i) {
      draw(stream, got, &ids[i], 100 + i);
      expected.push_back(100 + i);
    }
    graph.capture_end(stream);
    EXPECT_TRUE(replay(graph, stream));
    wait(stream);
    EXPECT_TRUE(got == expected);
  }
}

TEST(Graph, ThatFailsBeforeItIsQueuedSaysSo) {
  OwnKernels own;
  Stream &stream = side_stream(), &side = side_stream();
  const int ids[2] = {};
  for (const bool lanes : {false, true}) {
    std::vector<uint64_t> got;
    Graph graph;
    graph.capture_begin(stream, 0, CaptureMode::kGlobal);
    if (lanes) join(stream, side);
    if (lanes) join(side, stream);
    draw(stream, got, &ids[lanes], 5, &stream);
    graph.capture_end(stream);
    Stream* failed = nullptr;
    const uint64_t before = side.tail();
    EXPECT_TRUE(!graph.replay(stream, failed));
    EXPECT_TRUE(failed == &stream);
    EXPECT_EQ(side.tail(), before);
    EXPECT_TRUE(got.empty());
    stream.clear_error();
  }
}

struct Told final : Observer {
  std::vector<std::string> names;
  std::vector<uint64_t> words;
  Stream* stream = nullptr;
  void replays(Stream& s, const KernelCall* calls, size_t count,
               Captured) override {
    stream = &s;
    for (size_t i = 0; i < count; ++i) {
      names.push_back(calls[i].kernel->name);
      words.push_back(calls[i].words[1]);
    }
  }
};

// The observer is not told of groups, whose arguments may be replaced at any
// moment.
TEST(Graph, TellsAnObserverWhatAReplayRuns) {
  Stream &a = side_stream(), &b = side_stream();
  std::vector<uint64_t> got;
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  submit(a, kAppend, {word(&got), 1});
  join(a, b);
  submit(b, kAppend, {word(&got), 2});
  join(b, a);
  Capture::get().begin_group(a);
  submit(a, kAppend, {word(&got), 3});
  EXPECT_TRUE(Capture::get().end_group(a) != nullptr);
  submit(a, kAppend, {word(&got), 4});
  graph.capture_end(a);
  Told told;
  set_observer(&told);
  replay(graph, a);
  wait(a);
  wait(b);
  set_observer(nullptr);

  EXPECT_TRUE(told.stream == &a);
  EXPECT_EQ(told.names.size(), 3);
  for (const std::string& name : told.names) EXPECT_EQ(name, kAppend.name);
  EXPECT_TRUE(told.words == std::vector<uint64_t>({1, 2, 4}));
  EXPECT_TRUE(got == std::vector<uint64_t>({1, 2, 3, 4}));
}

// Where one thread runs all streams, no lane can wait for another.
TEST(Graph, RunsInTurnWhereAnObserverRunsTheTasks) {
  struct Runs final : Observer {
    bool runs_tasks() const override { return true; }
  } runs;
  Stream &a = side_stream(), &b = side_stream();
  submit(a, kNothing, {});  // starts its launcher
  submit(b, kNothing, {});
  std::vector<uint64_t> got;
  Graph graph;
  wait(a);
  wait(b);
  capture_two_lanes(graph, a, b, got);
  const uint64_t before = b.tail();
  set_observer(&runs);
  replay(graph, a);
  set_observer(nullptr);
  wait(a);
  EXPECT_EQ(b.tail(), before);
  EXPECT_TRUE(got == std::vector<uint64_t>({1, 2, 3}));
  replay(graph, a);
  wait(a);
  wait(b);
  EXPECT_EQ(b.tail(), before + 1);
}

bool waits_for_lane(Stream& stream) {
  return stream.block().held[int(Hold::kBarrier)].word.load() &
         RunningTime::kRunning;
}

TEST(Graph, ShowsThatALaneWaitsForAnother) {
  Stream &a = side_stream(), &b = side_stream();
  Gate gate;
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  join(a, b);
  submit(b, kGate, {word(&gate)});
  join(b, a);
  graph.capture_end(a);
  replay(graph, a);
  // While b runs its kernel, its wait for the fork is behind it.
  gate.wait_until_entered();
  while (!waits_for_lane(a)) sched_yield();
  EXPECT_TRUE(!waits_for_lane(b));
  gate.open();
  wait(a);
  EXPECT_TRUE(!waits_for_lane(a));
}

TEST(Graph, ShowsItsNodesToAProfile) {
  Stream &a = side_stream(), &b = side_stream();
  std::vector<uint64_t> got;
  Graph one, two;
  one.capture_begin(a, 0, CaptureMode::kGlobal);
  submit(a, kAppend, {word(&got), 0});
  submit(a, kNothing, {});
  one.capture_end(a);
  capture_two_lanes(two, a, b, got);
  start_profile();
  const uint64_t began = ticks();
  replay(one, a);
  replay(two, a);
  wait(a);
  wait(b);
  const auto runs = stop_profile();
  EXPECT_EQ(runs.size(), 5);
  uint64_t of_b = 0;
  for (const ProfiledRun& run : runs) {
    EXPECT_TRUE(run.started >= began && run.ended >= run.started);
    of_b += run.stream == b.id();
  }
  EXPECT_EQ(of_b, 1);
}

TEST(Capture, RefusesAnOperatorThatWouldWaitWithItsOwnWords) {
  Stream &captured = side_stream(), &other = side_stream();
  const auto asks = [](Stream& stream) {
    return refused([&] { forbid_wait(stream, "test::op", "a rule"); });
  };
  EXPECT_EQ(asks(captured), "");
  for (const bool relaxed : {false, true}) {
    Graph graph;
    graph.capture_begin(captured, 0,
                        relaxed ? CaptureMode::kRelaxed : CaptureMode::kGlobal);
    EXPECT_TRUE(contains(asks(captured), "test::op"));
    EXPECT_TRUE(contains(asks(captured), "a rule"));
    EXPECT_EQ(asks(other).empty(), relaxed);
    EXPECT_TRUE(contains(refused([&] { forbid_query(captured); }), "query()"));
    EXPECT_EQ(refused([&] { forbid_query(other); }), "");
    EXPECT_TRUE(contains(refused([&] { forbid_on(captured, "this", "that"); }),
                         "that"));
    graph.capture_end(captured);
  }
  EXPECT_EQ(refused([&] { forbid_query(captured); }), "");
  EXPECT_EQ(refused([&] { forbid_anywhere("this", "that"); }), "");
}

}  // namespace
}  // namespace npu
