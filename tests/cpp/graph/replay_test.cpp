#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/graph/graph.h"
#include "csrc/observe/observer.h"
#include "tests/cpp/check.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::capture_two_lanes;
using check::Gate;
using check::join;
using check::kAppend;
using check::kFail;
using check::kGate;
using check::replay;
using check::side_stream;
using check::submit;
using check::wait;
using check::word;

// Who watches may raise then, for each of them.
TEST(Graph, TellsWhoWatchesThatItIsQueuedOnEachOfItsStreams) {
  struct Watching final : Observer {
    std::vector<const Stream*> told;
    void published(Stream& stream, bool) override { told.push_back(&stream); }
  } watching;
  std::vector<uint64_t> got;
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  capture_two_lanes(graph, a, b, got);
  set_observer(&watching);
  for (Stream* stream : {&a, &b}) stream->set_observed(true);
  EXPECT_TRUE(replay(graph, a));
  for (Stream* stream : {&a, &b}) {
    wait(*stream);
    stream->set_observed(false);
  }
  set_observer(nullptr);
  EXPECT_TRUE(watching.told == std::vector<const Stream*>({&a, &b}));
  EXPECT_TRUE(got == std::vector<uint64_t>({1, 2, 3}));
}

// The lane that it waits for may belong to a device that was not stopped.
TEST(Graph, EndsWhereAStreamThatWaitsForAnotherLaneIsStopped) {
  Stream &a = side_stream(), &b = side_stream();
  check::Gate gate;
  std::vector<uint64_t> got;
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  submit(a, kGate, {word(&gate)});
  check::join(a, b);
  submit(b, kAppend, {word(&got), 1});
  check::join(b, a);
  graph.capture_end(a);
  EXPECT_TRUE(replay(graph, a));
  gate.wait_until_entered();
  b.force_stop();
  EXPECT_TRUE(b.retired().sleep(b.tail(), 100'000'000'000));
  EXPECT_TRUE(!a.idle());
  gate.open();
  wait(a);
  EXPECT_TRUE(got.empty());
  for (Stream* stream : {&a, &b}) stream->clear_error();
  EXPECT_TRUE(replay(graph, a));
  wait(a);
  EXPECT_EQ(got.size(), 1);
}

TEST(Graph, RunsNothingBeforeItsReplay) {
  std::vector<uint64_t> got;
  Stream& stream = side_stream();
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  submit(stream, kAppend, {word(&got), 1});
  submit(stream, kAppend, {word(&got), 2});
  graph.capture_end(stream);
  EXPECT_EQ(stream.tail(), stream.retired().value());
  EXPECT_TRUE(got.empty());

  replay(graph, stream);
  replay(graph, stream);
  wait(stream);

  EXPECT_TRUE(got == std::vector<uint64_t>({1, 2, 1, 2}));
}

TEST(Graph, ReplaysOnAnotherStreamAfterTheLastReplay) {
  std::vector<uint64_t> got;
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  for (uint64_t i = 0; i < 10; ++i) submit(a, kAppend, {word(&got), i});
  graph.capture_end(a);

  for (int i = 0; i < 100; ++i) replay(graph, i % 2 ? a : b);
  wait(a);
  wait(b);

  EXPECT_EQ(got.size(), 1000);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i % 10);
}

// Both streams write the same vector, which is a race unless the waits are
// kept.
TEST(Graph, KeepsForksAndJoins) {
  std::vector<uint64_t> got;
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  submit(a, kAppend, {word(&got), 0});
  join(a, b);
  submit(b, kAppend, {word(&got), 1});
  join(b, a);
  submit(a, kAppend, {word(&got), 2});
  graph.capture_end(a);
  EXPECT_TRUE(!graph.one_stream());

  for (int i = 0; i < 200; ++i) replay(graph, a);
  wait(a);

  EXPECT_EQ(got.size(), 600);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i % 3);
}

TEST(Graph, OfSeveralStreamsReplaysOnItsSideStream) {
  std::vector<uint64_t> got;
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  join(a, b);
  submit(b, kAppend, {word(&got), 1});
  join(b, a);
  submit(a, kAppend, {word(&got), 2});
  graph.capture_end(a);

  for (int i = 0; i < 50; ++i) replay(graph, i % 2 ? a : b);
  wait(a);
  wait(b);

  EXPECT_EQ(got.size(), 100);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i % 2 + 1);
}

TEST(Graph, TwoGraphsWithTheirStreamsSwappedDoNotWaitForEachOther) {
  Stream &a = side_stream(), &b = side_stream();
  std::vector<uint64_t> got[2];
  Graph graphs[2];
  for (int i = 0; i < 2; ++i) {
    Stream &first = i ? b : a, &second = i ? a : b;
    graphs[i].capture_begin(first, 0, CaptureMode::kGlobal);
    join(first, second);
    submit(second, kAppend, {word(&got[i]), 1});
    join(second, first);
    graphs[i].capture_end(first);
  }

  std::thread other([&] {
    for (int i = 0; i < 500; ++i) replay(graphs[1], b);
  });
  for (int i = 0; i < 500; ++i) replay(graphs[0], a);
  other.join();
  wait(a);
  wait(b);

  EXPECT_EQ(got[0].size(), 500);
  EXPECT_EQ(got[1].size(), 500);
}

TEST(Graph, AFailureOnOneStreamFailsTheOtherAndNotTheNextReplay) {
  std::vector<uint64_t> got;
  uint64_t code = NPU_INDEX_ERROR;
  static constexpr npu_kernel kMaybe{
      [](const npu_kernel*, const uint64_t* words, npu_failure* failure) {
        failure->text[0] = 0;
        return int(*reinterpret_cast<const uint64_t*>(words[0]));
      },
      "test::maybe", nullptr, 0};
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  join(a, b);
  submit(b, kMaybe, {word(&code)});
  join(b, a);
  submit(a, kAppend, {word(&got), 1});
  graph.capture_end(a);

  replay(graph, a);
  wait(a);
  wait(b);
  EXPECT_TRUE(a.failed());
  EXPECT_TRUE(b.failed());
  EXPECT_TRUE(got.empty());
  EXPECT_TRUE(!replay(graph, a));

  a.clear_error();
  b.clear_error();
  code = NPU_OK;
  EXPECT_TRUE(replay(graph, a));
  wait(a);
  EXPECT_EQ(got.size(), 1);
}

// How often the stream's launcher has gone to sleep.
uint64_t sleeps_of(Stream& stream) {
  std::ifstream status("/proc/self/task/" +
                       std::to_string(stream.block().thread.load()) +
                       "/status");
  const std::string key = "voluntary_ctxt_switches:";
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::stoull(line.substr(key.size()));
  return 0;
}

// A waiting lane looks now and then whether the other lane has failed. A
// failure of the replay before must not count.
TEST(Graph, AnEarlierFailureDoesNotEndALaterWaitWithinAReplay) {
  std::vector<uint64_t> got;
  check::Gate first_gate, gate;
  std::atomic<check::Gate*> current{&first_gate};
  std::atomic<int> code{NPU_INDEX_ERROR};
  static constexpr npu_kernel kHeld{
      [](const npu_kernel*, const uint64_t* words, npu_failure* failure) {
        reinterpret_cast<std::atomic<check::Gate*>*>(words[0])->load()->pass();
        failure->text[0] = 0;
        return reinterpret_cast<std::atomic<int>*>(words[1])->load();
      },
      "test::held", nullptr, 0};
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  join(a, b);
  submit(b, kHeld, {word(&current), word(&code)});
  join(b, a);
  submit(a, kAppend, {word(&got), 1});
  graph.capture_end(a);
  first_gate.open();
  EXPECT_TRUE(replay(graph, a));
  wait(a);
  wait(b);
  EXPECT_TRUE(a.failed() && b.failed());
  a.clear_error();
  b.clear_error();
  code = NPU_OK;
  current = &gate;

  EXPECT_TRUE(replay(graph, a));
  gate.wait_until_entered();
  const uint64_t asleep = sleeps_of(a);
  while (sleeps_of(a) < asleep + 4 && a.retired().value() < a.tail())
    std::this_thread::yield();
  EXPECT_TRUE(a.retired().value() < a.tail());
  gate.open();
  wait(a);
  wait(b);

  EXPECT_TRUE(!a.failed());
  EXPECT_EQ(got.size(), 1);
}

// The replay's first stream has failed before it waited for the other one,
// which still runs its part.
TEST(Graph, AReplayWaitsForWhatStillRunsOfOneThatFailed) {
  std::vector<uint64_t> got;
  check::Gate gate;
  std::atomic<int> code{NPU_INDEX_ERROR};
  static constexpr npu_kernel kMaybe{
      [](const npu_kernel*, const uint64_t* words, npu_failure* failure) {
        failure->text[0] = 0;
        return reinterpret_cast<std::atomic<int>*>(words[0])->load();
      },
      "test::maybe", nullptr, 0};
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  join(a, b);
  submit(b, check::kGate, {word(&gate)});
  submit(a, kMaybe, {word(&code)});
  join(b, a);
  submit(a, kAppend, {word(&got), 1});
  graph.capture_end(a);
  EXPECT_TRUE(replay(graph, a));
  gate.wait_until_entered();
  wait(a);
  EXPECT_TRUE(a.failed() && !b.failed());
  a.clear_error();
  code = NPU_OK;

  const uint64_t before = a.tail();
  EXPECT_TRUE(replay(graph, a));
  EXPECT_EQ(a.tail(), before + 2);  // a wait for b, and the replay
  gate.open();
  wait(a);
  wait(b);

  EXPECT_TRUE(!a.failed() && !b.failed());
  EXPECT_EQ(got.size(), 1);
}

TEST(Graph, ADroppedReplayLetsTheOtherStreamGoOn) {
  std::vector<uint64_t> got;
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  join(a, b);
  submit(b, kAppend, {word(&got), 1});
  join(b, a);
  graph.capture_end(a);
  check::Gate gate;
  submit(b, check::kGate, {word(&gate)});
  submit(b, kFail, {NPU_ERROR});

  EXPECT_TRUE(replay(graph, a));
  gate.open();
  wait(a);
  wait(b);

  EXPECT_TRUE(a.failed());
  EXPECT_TRUE(got.empty());
  a.clear_error();
  b.clear_error();
}

// The first replay's streams are c and b, the second's b and a: nothing holds
// up a, which must not pass for the second lane of the first replay.
TEST(Graph, AReplayOnASideStreamDoesNotEndTheOneBefore) {
  std::vector<uint64_t> got;
  check::Gate gate;
  Stream &a = side_stream(), &b = side_stream(), &c = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  join(a, b);
  submit(b, check::kGate, {word(&gate)});
  submit(b, kAppend, {word(&got), 1});
  join(b, a);
  submit(a, kAppend, {word(&got), 2});
  graph.capture_end(a);

  EXPECT_TRUE(replay(graph, c));
  gate.wait_until_entered();
  EXPECT_TRUE(replay(graph, b));
  const RunningTime& held = a.block().held[int(Hold::kBarrier)];
  while (!(held.word.load() & held.kRunning)) std::this_thread::yield();
  EXPECT_EQ(graph.body()->lanes[1].progress.value(), 0);
  EXPECT_TRUE(c.retired().value() < c.tail());
  gate.open();
  for (Stream* stream : {&a, &b, &c}) wait(*stream);

  EXPECT_TRUE(got == std::vector<uint64_t>({1, 2, 1, 2}));
}

TEST(Graph, IsBuriedInFlight) {
  std::vector<uint64_t> got;
  Stream& stream = side_stream();
  check::Gate gate;
  {
    Graph graph;
    graph.capture_begin(stream, 0, CaptureMode::kGlobal);
    submit(stream, kAppend, {word(&got), 1});
    graph.capture_end(stream);
    submit(stream, check::kGate, {word(&gate)});
    replay(graph, stream);
  }
  gate.open();
  wait(stream);

  EXPECT_EQ(got.size(), 1);
}

TEST(Capture, EndsAndNamesAStreamThatWasNotJoined) {
  std::vector<uint64_t> got;
  Stream &a = side_stream(), &b = side_stream();
  Graph graph;
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  join(a, b);
  submit(b, kAppend, {word(&got), 1});

  std::string message;
  try {
    graph.capture_end(a);
  } catch (const CaptureError& e) {
    message = e.what();
  }

  EXPECT_TRUE(message.find("test::append") != std::string::npos);
  EXPECT_TRUE(!a.sink() && !b.sink() && !active_capture());
  submit(b, kAppend, {word(&got), 2});
  wait(b);
  EXPECT_TRUE(got == std::vector<uint64_t>({2}));
}

TEST(Graph, OfSeveralStreamsIsNotReplayedInACaptureOfOneOfThem) {
  std::vector<uint64_t> got;
  Stream &a = side_stream(), &b = side_stream();
  Graph graph, other;
  capture_two_lanes(graph, a, b, got);
  other.capture_begin(b, 0, CaptureMode::kRelaxed);
  EXPECT_THROWS(replay(graph, a), CaptureError);
  submit(b, check::kNothing, {});
  other.capture_end(b);
  EXPECT_TRUE(replay(graph, a));
  wait(a);
  EXPECT_TRUE(got == std::vector<uint64_t>({1, 2, 3}));
}

}  // namespace
}  // namespace npu
