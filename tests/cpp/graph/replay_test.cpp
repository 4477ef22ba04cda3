// What a replay runs, in which order, and what it leaves where it fails, is
// stopped or waits.
#include "csrc/graph/graph.h"
#include "csrc/interop/foreign.h"
#include "tests/cpp/graph/lanes.h"

namespace npu {
namespace {

// A kernel that passes a gate, where it has one, and returns a code.
struct Step {
  std::atomic<int> code{NPU_OK};
  std::atomic<Gate*> gate{nullptr};
};
// words: Step*
int run_step(const npu_kernel*, const uint64_t* words, npu_failure* failure) {
  const Step& step = *reinterpret_cast<Step*>(words[0]);
  if (Gate* const gate = step.gate.load()) gate->pass();
  failure->text[0] = 0;
  return step.code;
}
constexpr npu_kernel kStep{run_step, "test::step", nullptr, 0};

bool waits_for_lane(Stream& stream) {
  return stream.block().held[int(Hold::kBarrier)].word.load() &
         RunningTime::kRunning;
}

// All lanes write the same vector, which is a race unless the order is kept.
TEST(Graph, KeepsItsOrderWhereverItIsReplayed) {
  for (const bool lanes : {false, true}) {
    Lanes l;
    if (lanes)
      l.capture([&] { l.append(l.b, 0); }, 1);
    else
      capture(l.graph, l.a, [&] {
        l.append(l.a, 0);
        l.append(l.a, 1);
      });
    EXPECT_EQ(l.graph.one_stream(), !lanes);
    for (int i = 0; i < 100; ++i) l.replay();
    for (int i = 0; i < 100; ++i) replay(l.graph, i % 2 ? l.a : l.b);
    l.settle();
    EXPECT_EQ(l.got.size(), 400);
    for (uint64_t i = 0; i < l.got.size(); ++i) EXPECT_EQ(l.got[i], i % 2);
  }
}

TEST(Graph, TwoGraphsWithTheirStreamsSwappedDoNotWaitForEachOther) {
  Stream &a = side_stream(), &b = side_stream();
  Numbers got[2];
  Graph graphs[2];
  for (int i = 0; i < 2; ++i) {
    Stream &first = i ? b : a, &second = i ? a : b;
    capture(graphs[i], first, [&] {
      join(first, second);
      append(second, got[i], 1);
      join(second, first);
    });
  }
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) replay(graphs[1], b);
  });
  for (int i = 0; i < 500; ++i) replay(graphs[0], a);
  other.join();
  drain(a);
  drain(b);
  EXPECT_TRUE(got[0].size() == 500 && got[1].size() == 500);
}

// Who watches may raise then, for each of them.
TEST(Graph, TellsWhoWatchesThatItIsQueuedOnEachOfItsStreams) {
  Watching watching;
  Lanes l;
  l.capture([&] { l.append(l.b, 1); }, 2);
  {
    const Listed listed(watching, {&l.a, &l.b});
    EXPECT_TRUE(l.replay());
    l.settle();
  }
  EXPECT_TRUE(watching.told == std::vector<const Stream*>({&l.a, &l.b}));
  EXPECT_EQ(l.got, Numbers({1, 2}));
}

// The lane that it waits for may belong to a device that was not stopped.
TEST(Graph, EndsWhereAStreamThatWaitsForAnotherLaneIsStopped) {
  Lanes l;
  Gate gate;
  capture(l.graph, l.a, [&] {
    submit(l.a, kGate, {word(&gate)});
    join(l.a, l.b);
    l.append(l.b, 1);
    join(l.b, l.a);
  });
  EXPECT_TRUE(l.replay());
  gate.wait_until_entered();
  l.b.force_stop();
  EXPECT_TRUE(l.b.retired().sleep(l.b.tail(), 100'000'000'000));
  EXPECT_TRUE(!l.a.idle());
  drain(l.a, gate);
  EXPECT_TRUE(l.got.empty());
  l.clear_errors();
  EXPECT_TRUE(l.replay());
  drain(l.a);
  EXPECT_EQ(l.got.size(), 1);
}

// How often the stream's launcher has gone to sleep.
uint64_t sleeps_of(Stream& stream) {
  const std::string key = "\nvoluntary_ctxt_switches:",
                    status = thread_file(stream.block().thread, "status");
  return std::stoull(status.substr(status.find(key) + key.size()));
}

// A waiting lane looks now and then whether the other lane has failed. A
// failure of the replay before must not count.
TEST(Graph, AFailureOnOneStreamFailsTheOtherAndNotTheNextReplay) {
  Lanes l;
  Step step;
  Gate gate;
  l.capture([&] { submit(l.b, kStep, {word(&step)}); }, 1);
  step.code = NPU_INDEX_ERROR;
  EXPECT_TRUE(l.replay());
  l.settle();
  EXPECT_TRUE(l.a.failed() && l.b.failed() && l.got.empty());
  EXPECT_TRUE(!l.replay());
  l.clear_errors();
  step.code = NPU_OK;
  step.gate = &gate;
  EXPECT_TRUE(l.replay());
  gate.wait_until_entered();
  const uint64_t asleep = sleeps_of(l.a);
  while (sleeps_of(l.a) < asleep + 4 && l.a.retired().value() < l.a.tail())
    std::this_thread::yield();
  EXPECT_TRUE(l.a.retired().value() < l.a.tail());
  gate.open();
  l.settle();
  EXPECT_TRUE(!l.a.failed());
  EXPECT_EQ(l.got.size(), 1);
}

// The replay's first stream has failed before it waited for the other one,
// which still runs its part.
TEST(Graph, AReplayWaitsForWhatStillRunsOfOneThatFailed) {
  Lanes l;
  Step step;
  Gate gate;
  l.capture(
      [&] {
        submit(l.b, kGate, {word(&gate)});
        submit(l.a, kStep, {word(&step)});
      },
      1);
  step.code = NPU_INDEX_ERROR;
  EXPECT_TRUE(l.replay());
  gate.wait_until_entered();
  drain(l.a);
  EXPECT_TRUE(l.a.failed() && !l.b.failed());
  l.a.clear_error();
  step.code = NPU_OK;
  const uint64_t before = l.a.tail();
  EXPECT_TRUE(l.replay());
  EXPECT_EQ(l.a.tail(), before + 2);  // a wait for b, and the replay
  gate.open();
  l.settle();
  EXPECT_TRUE(!l.a.failed() && !l.b.failed());
  EXPECT_EQ(l.got.size(), 1);
}

TEST(Graph, ADroppedReplayLetsTheOtherStreamGoOn) {
  Lanes l;
  Gate gate;
  l.capture([&] { l.append(l.b, 1); });
  submit(l.b, kGate, {word(&gate)});
  submit(l.b, kFail, {NPU_ERROR});
  EXPECT_TRUE(l.replay());
  gate.open();
  l.settle();
  EXPECT_TRUE(l.a.failed() && l.got.empty());
  l.clear_errors();
}

TEST(Graph, OfAFailedStreamIsNotReplayed) {
  Lanes l;
  l.capture([&] { l.append(l.b, 1); });
  fail(l.b);
  Stream* failed = nullptr;
  EXPECT_TRUE(!l.graph.replay(l.a, failed));
  EXPECT_TRUE(failed == &l.b);
  drain(l.a);
  EXPECT_TRUE(l.got.empty());
  l.clear_errors();
  EXPECT_TRUE(l.replay());
  l.settle();
  EXPECT_EQ(l.got.size(), 1);
}

// One replay of a graph runs at a time, whatever the streams.
TEST(Graph, OnAnotherStreamWaitsForItsReplayBefore) {
  Lanes l;
  Numbers beside;
  capture(l.graph, l.a, [&] { l.append(l.a, 1); });
  for (int round = 0; round < 2; ++round) {
    Gate gate;
    submit(l.a, kGate, {word(&gate)});
    l.replay();
    const uint64_t before = l.b.tail();
    replay(l.graph, l.b);
    EXPECT_EQ(l.b.tail(), before + 2);  // a wait, and the replay
    replay(l.graph, l.b);
    EXPECT_EQ(l.b.tail(), before + 3);
    append(l.a, beside, 2);  // not before b's
    EXPECT_TRUE(l.b.retired().value() < l.b.tail());
    gate.open();
    l.settle();
  }
  EXPECT_TRUE(l.got.size() == 6 && beside.size() == 2);
}

// The first replay's streams are c and b, the second's b and a: nothing holds
// up a, which must not pass for the second lane of the first replay.
TEST(Graph, AReplayOnASideStreamDoesNotEndTheOneBefore) {
  Lanes l;
  Gate gate;
  Stream& c = side_stream();
  l.capture(
      [&] {
        submit(l.b, kGate, {word(&gate)});
        l.append(l.b, 1);
      },
      2);
  EXPECT_TRUE(replay(l.graph, c));
  gate.wait_until_entered();
  EXPECT_TRUE(replay(l.graph, l.b));
  while (!waits_for_lane(l.a)) std::this_thread::yield();
  EXPECT_EQ(l.graph.body()->lanes[1].progress.value(), 0);
  EXPECT_TRUE(c.retired().value() < c.tail());
  gate.open();
  l.settle();
  drain(c);
  EXPECT_EQ(l.got, Numbers({1, 2, 1, 2}));
}

TEST(Graph, ShowsThatALaneWaitsForAnother) {
  Lanes l;
  Gate gate;
  l.capture([&] { submit(l.b, kGate, {word(&gate)}); });
  l.replay();
  // While b runs its kernel, its wait for the fork is behind it.
  gate.wait_until_entered();
  while (!waits_for_lane(l.a)) std::this_thread::yield();
  EXPECT_TRUE(!waits_for_lane(l.b));
  drain(l.a, gate);
  EXPECT_TRUE(!waits_for_lane(l.a));
}

TEST(Graph, IsNotReplayedWithoutACaptureNorInOneOfItsStreams) {
  Lanes l;
  Graph one, other;
  EXPECT_TRUE(one.one_stream() && one.body() == nullptr);
  EXPECT_THROWS(replay(one, l.a), std::runtime_error);
  capture(one, l.b, [&] { submit(l.b, kNothing, {}); });
  l.capture([&] { l.append(l.b, 1); });
  other.capture_begin(l.b, 0, CaptureMode::kRelaxed);
  EXPECT_THROWS(l.replay(), CaptureError);
  EXPECT_REFUSED(replay(one, l.b), "cannot be captured");
  submit(l.b, kNothing, {});
  other.capture_end(l.b);
  EXPECT_TRUE(l.replay() && replay(one, l.b));
  l.settle();
  EXPECT_EQ(l.got, Numbers({1}));
}

TEST(Graph, RunsForeignWorkAtEachReplayAndReleasesItAtItsEnd) {
  struct State {
    int runs = 0, releases = 0;
  } state;
  Stream& stream = side_stream();
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
  capture(graph, stream, [&] {
    EXPECT_TRUE(submit_foreign(stream, work));
    std::string why;
    std::thread([&] {
      why = refused([&] { submit_foreign(stream, work); });
    }).join();
    EXPECT_CONTAINS(why, "only the thread that captures");
    EXPECT_TRUE(state.runs == 0 && state.releases == 1);  // the refused one's
  });
  for (int i = 0; i < 3; ++i) replay(graph, stream);
  drain(stream);
  EXPECT_TRUE(state.runs == 3 && state.releases == 1);
  // What other streams still run might use the graph.
  synchronize_device(0, WaitReason::kDeviceSync);
  graph.reset();
  EXPECT_EQ(state.releases, 2);
}

// A graph keeps the time of an event that was destroyed, and an event the time
// of a graph that was.
TEST(CapturedEvent, AndItsGraphMayGoInAnyOrder) {
  Stream& stream = side_stream();
  Event stays(Timing::kOn);
  Graph graph;
  capture(graph, stream, [&] {
    Event goes(Timing::kOn);
    goes.record(stream);
    stays.record(stream);
  });
  EXPECT_TRUE(replay(graph, stream));
  drain(stream);
  graph.reset();
  EXPECT_TRUE(stays.time_ns() > 0);
}

}  // namespace
}  // namespace npu
