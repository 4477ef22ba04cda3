// A graph's memory and its end: its pool, what replays overwrite and touch,
// what becomes of memory that it does not own, and what observers are told.
#include "csrc/engine/profiling.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/inputs.h"
#include "csrc/graph/lifetime.h"
#include "csrc/graph/replay_memory.h"
#include "csrc/graph/update.h"
#include "tests/cpp/graph/lanes.h"

namespace npu {
namespace {

void capture_nothing(Graph& graph, Stream& stream, uint64_t pool = 0) {
  capture(graph, stream, [&] { submit(stream, kNothing, {}); }, pool);
}

// A graph has left its pool when all streams have passed its end: what the
// tests before have left in theirs must not delay that.
Stream& stream_of_an_idle_device() {
  synchronize_device(0, WaitReason::kDeviceSync);
  return side_stream();
}

bool has_no_pool(const Graph& graph) {
  return contains(thrown([&] { graph.pool(); }), "pool()");
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
  EXPECT_REFUSED(other.capture_begin(stream, 0, CaptureMode::kGlobal),
                 "captured already");
}

TEST(GraphPool, KeepsWhatItsGraphsNeedUntilTheLastHasLeft) {
  Stream& stream = stream_of_an_idle_device();
  const uint64_t pool = new_pool();
  int released = 0;
  Graph graph, other;
  capture_nothing(graph, stream, pool);
  capture_nothing(other, stream, pool);
  for (int i = 0; i < 2; ++i) graph_pool(0, pool)->keep([&] { ++released; });
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
  EXPECT_TRUE(Capture::get().pool() == graph_pool(0, pool));
  join(a, b);
  submit(b, kNothing, {});
  EXPECT_TRUE(!refused([&] { graph.capture_end(a); }).empty());
  EXPECT_EQ(pool_users(0, pool), 0);
  EXPECT_TRUE(has_no_pool(graph) && !graph.capturing());
  EXPECT_TRUE(!Capture::get().under_way());
  EXPECT_REFUSED(Capture::get().pool(), "just ended");

  graph.capture_begin(a, pool, CaptureMode::kGlobal);
  Capture::get().abandon(&a);  // of nobody who captures
  EXPECT_TRUE(Capture::get().under_way());
  graph.reset();
  EXPECT_TRUE(!Capture::get().under_way() && !graph.capturing());
  EXPECT_EQ(pool_users(0, pool), 0);
  Capture::get().abandon(&graph);  // nothing is under way
}

// Destroys a graph whose replay still waits behind the gate; returns its pool.
uint64_t pool_of_a_queued_replay(Stream& stream, Gate& gate, Numbers& got) {
  Graph graph;
  capture(graph, stream, [&] { append(stream, got, 1); });
  submit(stream, kGate, {word(&gate)});
  EXPECT_TRUE(replay(graph, stream));
  return graph.pool();
}

TEST(GraphPool, IsLeftWhenTheLastReplayIsDone) {
  for (const bool by_capture : {false, true}) {
    Stream& stream = stream_of_an_idle_device();
    Gate gate;
    Numbers got;
    const uint64_t pool = pool_of_a_queued_replay(stream, gate, got);
    Graph other;
    if (!by_capture) capture_nothing(other, side_stream());
    EXPECT_EQ(pool_users(0, pool), 1);
    drain(stream, gate);
    EXPECT_EQ(got.size(), 1);
    EXPECT_EQ(pool_users(0, pool), 1);
    // Whoever comes next looks.
    if (by_capture)
      other.capture_begin(stream, 0, CaptureMode::kGlobal);
    else
      other.reset();
    EXPECT_EQ(pool_users(0, pool), 0);
    if (by_capture) other.capture_end(stream);
  }
}

struct Told final : Observer {
  std::vector<std::string> names;
  Numbers words;
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
  Lanes l;
  capture(l.graph, l.a, [&] {
    l.append(l.a, 1);
    join(l.a, l.b);
    l.append(l.b, 2);
    join(l.b, l.a);
    Capture::get().begin_group(l.a);
    l.append(l.a, 3);
    EXPECT_TRUE(Capture::get().end_group(l.a) != nullptr);
    l.append(l.a, 4);
  });
  Told told;
  list_observer(told, true);
  l.replay();
  l.settle();
  list_observer(told, false);
  EXPECT_TRUE(told.stream == &l.a);
  EXPECT_EQ(told.names, std::vector<std::string>(3, kAppend.name));
  EXPECT_EQ(told.words, Numbers({1, 2, 4}));
  EXPECT_EQ(l.got, Numbers({1, 2, 3, 4}));
}

// Where one thread runs all streams, no lane can wait for another.
TEST(Graph, RunsInTurnWhereAnObserverRunsTheTasks) {
  struct Runs final : Observer {
    unsigned wants() const override { return kRuns; }
  } runs;
  Lanes l;
  for (Stream* stream : {&l.a, &l.b}) EXPECT_TRUE(works(*stream));
  capture_two_lanes(l.graph, l.a, l.b, l.got);
  const uint64_t before = l.b.tail();
  list_observer(runs, true);
  l.replay();
  list_observer(runs, false);
  drain(l.a);
  EXPECT_EQ(l.b.tail(), before);
  EXPECT_EQ(l.got, Numbers({1, 2, 3}));
  l.replay();
  l.settle();
  EXPECT_EQ(l.b.tail(), before + 1);
}

TEST(Graph, CountsItsReplaysAndShowsItsNodesToAProfile) {
  const Counter& replays = segment().devices[0].graph_replays;
  const uint64_t before = replays.load();
  Lanes l;
  Graph one;
  capture(one, l.a, [&] {
    for (int i = 0; i < 2; ++i) submit(l.a, kNothing, {});
  });
  capture_two_lanes(l.graph, l.a, l.b, l.got);
  start_profile();
  const uint64_t began = ticks();
  replay(one, l.a);
  l.replay();
  l.settle();
  const auto runs = stop_profile();
  EXPECT_EQ(replays.load(), before + 2);
  EXPECT_EQ(runs.size(), 5);
  uint64_t of_b = 0;
  for (const ProfiledRun& run : runs) {
    EXPECT_TRUE(run.started >= began && run.ended >= run.started);
    of_b += run.stream == l.b.id();
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
    EXPECT_CONTAINS(asks(captured), "test::op");
    EXPECT_CONTAINS(asks(captured), "a rule");
    EXPECT_EQ(asks(other).empty(), relaxed);
    EXPECT_REFUSED(forbid_query(captured), "query()");
    EXPECT_EQ(refused([&] { forbid_query(other); }), "");
    EXPECT_REFUSED(forbid_on(captured, "this", "that"), "that");
    graph.capture_end(captured);
  }
  EXPECT_EQ(refused([&] { forbid_query(captured); }), "");
  EXPECT_EQ(refused([&] { forbid_anywhere("this", "that"); }), "");
}

struct Noted final : Contents {
  using Contents::Contents;
  bool held(std::span<const void* const>) const override { return is_held; }
  bool over() const override { return is_over; }
  Stream* take_borrower() override { return std::exchange(borrower, nullptr); }
  void overwritten() override { ++times; }

  bool is_held = false, is_over = false;
  Stream* borrower = nullptr;
  std::atomic<int> times = 0;
};

std::shared_ptr<Noted> contents(std::vector<ByteRange> bytes) {
  return std::make_shared<Noted>(std::move(bytes));
}

TEST(ReplayMemory, TellsWhomAReplayOverwrites) {
  ReplayMemory memory;
  Overwrites first(memory, {{10, 20}, {40, 50}}), second(memory, {{20, 40}});
  const auto met = contents({{0, 5}, {49, 60}}), beside = contents({{50, 60}});
  second.add(met);
  second.add(beside);

  first.replayed();
  EXPECT_EQ(met->times, 1);
  EXPECT_EQ(beside->times, 0);
  second.replayed();  // they are its own
  EXPECT_EQ(met->times, 2);
  EXPECT_EQ(beside->times, 1);
}

TEST(ReplayMemory, KnowsContentsThatWereThereBeforeAGraph) {
  ReplayMemory memory;
  Overwrites first(memory, {});
  const auto early = contents({{10, 20}}), over = contents({{10, 20}});
  first.add(early);
  first.add(over);
  over->is_over = true;
  Overwrites second(memory, {{15, 16}});
  second.replayed();
  EXPECT_EQ(early->times, 1);
  EXPECT_EQ(over->times, 0);
}

TEST(ReplayMemory, IsOfOnePool) {
  ReplayMemory memory, another;
  Overwrites one(memory, {{0, 10}}), other(another, {{0, 10}});
  const auto of_one = contents({{0, 10}});
  one.add(of_one);
  other.replayed();
  EXPECT_EQ(of_one->times, 0);
}

TEST(ReplayMemory, KnowsWhatIsHeldAndForgetsWhatIsOver) {
  ReplayMemory memory;
  Overwrites graph(memory, {{0, 10}});
  std::weak_ptr<Noted> seen;
  {
    const auto held = contents({{0, 10}});
    seen = held;
    graph.add(held);
    EXPECT_TRUE(!graph.any_held());
    held->is_held = true;
    EXPECT_TRUE(graph.any_held());
    held->is_over = true;
  }
  EXPECT_TRUE(!graph.any_held());
  graph.add(contents({{20, 30}}));  // the memory forgets it, too
  EXPECT_TRUE(seen.expired());
}

TEST(ReplayMemory, OutlivesGraphsThatAreGone) {
  ReplayMemory memory;
  const auto left = contents({{0, 10}});
  {
    Overwrites gone(memory, {{0, 10}});
    gone.add(left);
  }
  Overwrites next(memory, {{0, 10}});
  next.add(contents({{0, 10}}));  // not to the one that is gone
  next.replayed();
  EXPECT_EQ(left->times, 1);
}

// How many tasks of waiting the stream gets.
uint64_t waits(Overwrites& graph, Stream& stream) {
  const uint64_t before = stream.tail();
  graph.wait_for_borrowers(stream);
  return stream.tail() - before;
}

// Where the contents are over, nobody knows any more whom they were lent to:
// the stream waits for all.
TEST(ReplayMemory, LetsAStreamWaitOnceForBorrowers) {
  for (const bool over : {false, true}) {
    Stream &stream = side_stream(), &borrower = side_stream();
    Gate gate;
    submit(borrower, kGate, {word(&gate)});
    ReplayMemory memory;
    Overwrites graph(memory, {{0, 10}});
    const auto lent = contents({{0, 10}});
    graph.add(lent);
    EXPECT_EQ(waits(graph, stream), 0);
    lent->is_over = over;
    if (!over) lent->borrower = &borrower;
    EXPECT_TRUE(!graph.any_held());
    for (const int tasks : {1, 0}) EXPECT_EQ(waits(graph, stream), tasks);
    drain(stream, gate);
  }
}

TEST(ReplayMemory, IsSharedByTheGraphsOfAPoolAndToldByTheirReplays) {
  Stream& stream = side_stream();
  const uint64_t pool = new_pool();
  Graph graph, same, other;
  capture_nothing(graph, stream, pool);
  capture_nothing(same, stream, pool);
  capture_nothing(other, stream);
  Overwrites& own = *graph.body()->overwrites;
  EXPECT_TRUE(&own.memory() == &same.body()->overwrites->memory());
  EXPECT_TRUE(&own.memory() != &other.body()->overwrites->memory());
  const auto left = contents({});
  own.add(left);
  EXPECT_TRUE(replay(graph, stream));
  EXPECT_EQ(left->times, 1);
  EXPECT_TRUE(replay(same, stream) && replay(other, stream));
  EXPECT_EQ(left->times, 1);
  drain(stream);
}

// Two graphs of a pool, captured and replayed by threads of their own.
TEST(ReplayMemory, IsThreadSafe) {
  ReplayMemory memory;
  on_threads(2, [&](int) {
    for (int i = 0; i < 200; ++i) {
      Overwrites graph(memory, {{0, 10}});
      const auto left = contents({{0, 10}});
      graph.add(left);
      graph.replayed();
      EXPECT_TRUE(left->times >= 1);
      EXPECT_TRUE(!graph.any_held());
    }
  });
}

constexpr int64_t kSizes[] = {2, 4}, kStrides[] = {8, 1};
const npu_view kViews[] = {
    {kSizes, kStrides, 2, 4, 0, NPU_READ},
    {kSizes, kStrides, 2, 4, 1, NPU_WRITE},
    {kSizes, kStrides, 2, 4, 2, NPU_READ | NPU_WRITE},
};
const npu_kernel kThree{run_nothing, "three", kViews, 3};
// From the first element to the last one: (8 + 3 + 1) * 4 bytes.
constexpr uint64_t kBytes = 48;

TEST(Written, RangesAreJoinedAndInOrder) {
  Stream& stream = side_stream();
  Graph graph;
  capture(graph, stream, [&] {
    submit(stream, kThree, {0x9000, 0x5000, 0x3000});
    submit(stream, kThree, {0x9000, 0x3000 + kBytes, 0x7000});
    submit(stream, kThree, {0x9000, 0x5010, 0x7000});
  });
  Numbers found;
  for (const ByteRange& range : bytes_of(*graph.body(), NPU_WRITE))
    found.insert(found.end(), {range.lo, range.hi});
  EXPECT_EQ(found, Numbers({0x3000, 0x3000 + 2 * kBytes, 0x5000,
                            0x5010 + kBytes, 0x7000, 0x7000 + kBytes}));
}

TEST(Written, MeetsWhatHasAByteInCommon) {
  using Pairs = std::vector<std::pair<uintptr_t, uintptr_t>>;
  const std::vector<ByteRange> ranges{{10, 20}, {30, 40}};
  for (const auto& [lo, hi] : Pairs{
           {0, 11}, {19, 20}, {19, 31}, {25, 31}, {10, 20}, {0, 50}, {39, 50}})
    EXPECT_TRUE(meet(ranges, lo, hi));
  for (const auto& [lo, hi] : Pairs{{0, 10}, {20, 30}, {40, 50}, {0, 0}})
    EXPECT_TRUE(!meet(ranges, lo, hi));
  EXPECT_TRUE(!meet({}, 0, 50));
}

const int64_t kOne[] = {1};
const npu_view kFromTo[] = {{kOne, kOne, 1, 8, 0, NPU_READ},
                            {kOne, kOne, 1, 8, 1, NPU_WRITE}};

// words: source, result
int run_move(const npu_kernel*, const uint64_t* words, npu_failure*) {
  *reinterpret_cast<uint64_t*>(words[1]) =
      *reinterpret_cast<const uint64_t*>(words[0]);
  return NPU_OK;
}
const npu_kernel kMove{run_move, "test::move", kFromTo, 2};

// A graph that moves `a` to `b`, and in a group `c` to `d`. Who frees a number
// only says so: it stays where it is.
struct Moving {
  explicit Moving(bool check_inputs = true) {
    graph.capture_begin(captured, 0, CaptureMode::kGlobal, check_inputs);
    submit(captured, kMove, {word(&a), word(&b)});
    Capture::get().begin_group(captured);
    submit(captured, kMove, {word(&c), word(&d)});
    group = Capture::get().end_group(captured);
    graph.capture_end(captured);
  }

  static void free(const uint64_t& number) { memory_freed(&number, 8); }
  void update(const uint64_t& from) {
    begin_update(updating, graph, group);
    submit(updating, kMove, {word(&from), word(&unused)});
    end_update(updating);
    drain(updating);
  }
  // What the stream has failed with; "" where it has not.
  std::string replayed() {
    EXPECT_TRUE(replay(graph, captured));
    drain(captured);
    const auto error = captured.error();
    if (!error) return "";
    captured.clear_error();
    return error->message();
  }

  uint64_t a = 1, b = 0, c = 3, d = 0, e = 5, unused = 0;
  Stream& captured = side_stream();
  Stream& updating = side_stream();
  Graph graph;
  std::shared_ptr<Group> group;
};

TEST(Inputs, AReplayIsRefusedWhereWhatItReadsOrWritesIsFreed) {
  for (const int which : {0, 1, 2}) {
    Moving w;
    EXPECT_TRUE(w.replayed().empty() && w.b == 1 && w.d == 3);
    Moving::free(which == 0 ? w.a : which == 1 ? w.b : w.d);
    EXPECT_REFUSED(w.replayed(), "has been freed");
  }
}

TEST(Inputs, AReplayFailsAtAGroupWhoseArgumentIsFreed) {
  Moving w;
  Moving::free(w.c);
  for (int i = 0; i < 2; ++i)
    EXPECT_CONTAINS(w.replayed(),
                    "node 1, test::move: a tensor that it uses has been "
                    "freed; keep the arguments");
  EXPECT_EQ(w.d, 0);
  w.update(w.e);
  EXPECT_TRUE(w.replayed().empty() && w.d == 5);
  Moving::free(w.e);
  EXPECT_CONTAINS(w.replayed(), "has been freed");
}

TEST(Inputs, AnUpdateWatchesItsArgumentsFromTheirCallOn) {
  Moving w;
  begin_update(w.updating, w.graph, w.group);
  submit(w.updating, kMove, {word(&w.e), word(&w.unused)});
  Moving::free(w.e);
  Moving::free(w.unused);  // the result stays where the capture put it
  end_update(w.updating);
  EXPECT_TRUE(w.replayed().empty() || w.d == 0);
  drain(w.updating);
  EXPECT_CONTAINS(w.replayed(), "has been freed");
}

TEST(Inputs, WhatIsFreedOnceTheReplayIsQueuedIsUsed) {
  Moving w;
  Gate gate;
  hold(w.captured, gate);
  EXPECT_TRUE(replay(w.graph, w.captured));
  Moving::free(w.c);
  drain(w.captured, gate);
  EXPECT_TRUE(!w.captured.error() && w.d == 3);
  EXPECT_CONTAINS(w.replayed(), "has been freed");
}

TEST(Inputs, AreNotCheckedWhereTheCaptureSaysSo) {
  Moving w(false);
  for (const uint64_t* number : {&w.a, &w.b, &w.c, &w.d}) Moving::free(*number);
  EXPECT_TRUE(w.replayed().empty() && w.b == 1 && w.d == 3);
  w.update(w.e);
  Moving::free(w.e);
  EXPECT_TRUE(w.replayed().empty() && w.d == 5);
}

}  // namespace
}  // namespace npu
