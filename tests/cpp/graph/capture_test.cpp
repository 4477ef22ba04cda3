// What a capture takes, what it refuses, and what it says of both.
#include "csrc/graph/capture.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/lifetime.h"
#include "csrc/interop/foreign.h"
#include "tests/cpp/graph/lanes.h"

namespace npu {
namespace {

std::string name(const Stream& stream) {
  return "npu:0 stream " + std::to_string(stream.id());
}

uint64_t captures() { return segment().devices[0].graph_captures.load(); }
uint64_t failures(CaptureFailure cause) {
  return segment().devices[0].graph_capture_failures[int(cause)].load();
}

TEST(Capture, IsOneAtATimeAndNotOnEveryStream) {
  Stream &a = side_stream(), &b = side_stream();
  Graph graph, second;
  const auto begin = [&](Stream& stream) {
    return refused(
        [&] { second.capture_begin(stream, 0, CaptureMode::kGlobal); });
  };
  EXPECT_CONTAINS(begin(*find_stream(0, 0)), "the default stream");
  EXPECT_CONTAINS(begin(next_stream(0, StreamPool::kSyncLaunch)),
                  "SyncLaunchStream");
  graph.capture_begin(a, 0, CaptureMode::kThreadLocal);
  EXPECT_TRUE(graph.capturing());
  for (const std::string& part : {std::string("one capture at a time"), name(a),
                                  std::string("mode 'thread_local'")})
    EXPECT_CONTAINS(begin(b), part);
  EXPECT_TRUE(!second.capturing());
  graph.capture_end(a);
  EXPECT_TRUE(!graph.capturing());
}

TEST(Capture, CountsHowItEndedByTheFirstCause) {
  Stream& stream = side_stream();
  const uint64_t good = captures();
  const uint64_t sync = failures(CaptureFailure::kSync);
  const uint64_t rule = failures(CaptureFailure::kRule);
  const uint64_t abandoned = failures(CaptureFailure::kAbandoned);
  Graph graphs[3];
  capture(graphs[0], stream, [] {});
  EXPECT_EQ(captures(), good + 1);
  capture(graphs[1], stream, [&] {
    EXPECT_REFUSED(drain(stream), "waiting for a stream");
    EXPECT_REFUSED(forbid_anywhere("that", "never"), "never");
  });
  EXPECT_EQ(captures(), good + 1);
  EXPECT_EQ(failures(CaptureFailure::kSync), sync + 1);
  EXPECT_EQ(failures(CaptureFailure::kRule), rule);
  graphs[2].capture_begin(stream, 0, CaptureMode::kGlobal);
  graphs[2].reset();
  EXPECT_EQ(failures(CaptureFailure::kAbandoned), abandoned + 1);
  EXPECT_TRUE(active_capture() == nullptr && stream.sink() == nullptr);
  // Where another thread may go on, it is not over with the one that began it.
  for (const CaptureMode mode :
       {CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    Graph graph;
    std::thread([&] { graph.capture_begin(stream, 0, mode); }).join();
    EXPECT_EQ(graph.capturing(), mode == CaptureMode::kRelaxed);
  }
  EXPECT_EQ(failures(CaptureFailure::kAbandoned), abandoned + 3);
}

TEST(Capture, GoesOnWhenAnotherThreadEndsAndEndsWhosesoeverItIs) {
  Stream& stream = side_stream();
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  std::thread([&] {
    Graph other;
    EXPECT_REFUSED(other.capture_begin(stream, 0, CaptureMode::kGlobal),
                   "give it up with reset()");
  }).join();
  EXPECT_TRUE(graph.capturing());
  Capture::get().abandon();
  EXPECT_TRUE(!graph.capturing() && !active_capture() && !stream.sink());
  Capture::get().abandon();  // nothing is under way
}

std::string this_thread() {
  char text[32] = "";
  pthread_getname_np(pthread_self(), text, sizeof text);
  return std::string(text) + " (" + std::to_string(gettid()) + ")";
}

// Which threads may wait for work that is not captured, do what no capture
// allows, and give the capture work, by mode.
TEST(Capture, ForbidsAsItsModeSays) {
  Stream &captured = side_stream(), &other = side_stream();
  const struct {
    CaptureMode mode;
    const char* name;
    bool here, elsewhere;  // refused on the capturing thread, on another
  } cases[] = {{CaptureMode::kGlobal, "'global'", true, true},
               {CaptureMode::kThreadLocal, "'thread_local'", true, false},
               {CaptureMode::kRelaxed, "'relaxed'", false, false}};
  const std::string began = this_thread();
  for (const auto& c : cases) {
    submit(other, kNothing, {});
    Graph graph;
    graph.capture_begin(captured, 0, c.mode);
    const auto waits = [&] { return refused([&] { drain(other); }); };
    const auto calls = [] {
      return refused([] { forbid_anywhere("x", "y"); });
    };
    std::string own, works;
    EXPECT_EQ(!waits().empty(), c.here);
    EXPECT_CONTAINS(calls(), c.name);
    std::thread([&] {
      EXPECT_EQ(!waits().empty(), c.elsewhere);
      const std::string why = calls();
      EXPECT_EQ(!why.empty(), c.elsewhere);
      for (const std::string& part : {"on thread " + this_thread() + ",",
                                      "by thread " + began + " in mode"})
        EXPECT_EQ(contains(why, part), c.elsewhere);
      own = refused([&] { drain(captured); });
      works = refused([&] { submit(captured, kNothing, {}); });
    }).join();
    submit(captured, kNothing, {});
    graph.capture_end(captured);
    EXPECT_TRUE(!own.empty());
    const bool relaxed = c.mode == CaptureMode::kRelaxed;
    EXPECT_EQ(contains(works, "only the thread that captures"), !relaxed);
    EXPECT_EQ(graph.body()->nodes.size(), relaxed ? 2 : 1);
    drain(other);
  }
}

TEST(Capture, WaitsForNothingThatItHasNotCaptured) {
  Stream &captured = side_stream(), &other = side_stream();
  Event before(Timing::kOff), within(Timing::kOff);
  submit(other, kNothing, {});
  before.record(other);
  Graph graph, second;
  capture(graph, captured, [&] {
    EXPECT_REFUSED(captured.wait_for(other, before.number()), name(other));
    submit(captured, kNothing, {});
    within.record(captured);
    EXPECT_REFUSED(find_stream(0, 0)->wait_for(captured, within.number()),
                   "not the default one");
  });
  EXPECT_REFUSED(other.wait_for(captured, within.number()), "record it again");
  capture(second, captured, [&] {
    EXPECT_REFUSED(captured.wait_for(captured, within.number()),
                   "an earlier capture");
  });
}

TEST(Capture, EndsWhereItBeganByTheGraphThatBeganIt) {
  Stream &a = side_stream(), &b = side_stream();
  Graph graph, other;
  capture(graph, a, [&] {
    EXPECT_REFUSED(other.capture_end(a), "not being captured");
    EXPECT_REFUSED(graph.capture_end(b), "that it began on");
    EXPECT_TRUE(a.sink() != nullptr);
  });
}

TEST(Capture, GroupsDoNotNestAndEndOnTheirStream) {
  Stream &a = side_stream(), &b = side_stream();
  Capture& groups = Capture::get();
  EXPECT_REFUSED(groups.begin_group(a), "does not capture");
  Graph graph;
  capture(graph, a, [&] {
    EXPECT_REFUSED(groups.end_group(a), "without");
    groups.begin_group(a);
    EXPECT_REFUSED(groups.begin_group(a), "do not nest");
    EXPECT_REFUSED(groups.end_group(b), "without");
    EXPECT_TRUE(groups.end_group(a) == nullptr);  // it is empty
    groups.begin_group(a);
    submit(a, kNothing, {});
    EXPECT_TRUE(groups.end_group(a) != nullptr);
  });
  EXPECT_EQ(graph.body()->groups.size(), 1);
}

struct Source final : NumberSource {
  explicit Source(uint64_t seed) : seed(seed) {}
  Draws reserve(uint64_t count) noexcept override {
    return {seed, std::exchange(given, given + count)};
  }
  uint64_t seed, given = 0;
};

// words: vector, seed, offset
int run_note_draw(const npu_kernel*, const uint64_t* words, npu_failure*) {
  auto& got = *reinterpret_cast<Numbers*>(words[0]);
  got.insert(got.end(), {words[1], words[2]});
  return NPU_OK;
}
npu_kernel kNoteDraw{run_note_draw, "test::draw", nullptr, 0};

struct OwnKernels {
  OwnKernels() {
    hooks.own_kernel = [](const npu_kernel* kernel) {
      if (kernel != &kNoteDraw) return OwnKernel{nullptr, nullptr, -1};
      return OwnKernel{&kNoteDraw, [](npu_kernel*) {}, 1};
    };
  }
  ~OwnKernels() { hooks.own_kernel = nullptr; }
};

void draw(Stream& stream, Numbers& got, const int* id, uint64_t seed,
          uint64_t count) {
  const Draws at = Capture::get().draw(
      id, [&] { return std::make_unique<Source>(seed); }, count);
  submit(stream, kNoteDraw, {word(&got), at.seed, at.offset});
}

TEST(Graph, ThatFailsBeforeItIsQueuedSaysSo) {
  // Fails the stream of a replay that is about to be queued.
  struct Failing final : Observer {
    void replays(Stream& stream, const KernelCall*, size_t, Captured) override {
      fail(stream);
    }
  } failing;
  const int id = 0;
  OwnKernels own;
  for (const bool lanes : {false, true}) {
    Lanes l;
    capture(l.graph, l.a, [&] {
      if (lanes) join(l.a, l.b);
      if (lanes) join(l.b, l.a);
      draw(l.a, l.got, &id, 5, 1);
    });
    Stream* failed = nullptr;
    const uint64_t before = l.b.tail();
    list_observer(failing, true);
    EXPECT_TRUE(!l.graph.replay(l.a, failed));
    list_observer(failing, false);
    EXPECT_TRUE(failed == &l.a && l.got.empty());
    EXPECT_EQ(l.b.tail(), before);
    l.a.clear_error();
    EXPECT_TRUE(l.replay());
    l.settle();
    EXPECT_EQ(l.got, Numbers({5, 0}));  // the first numbers
  }
}

TEST(Capture, GivesForeignWorkTheNumbersOfEachReplay) {
  Numbers got;
  int id;
  Stream& stream = side_stream();
  char touched[8];
  ForeignWork work{"test::numbered",
                   [](void* state, uint64_t number, npu_failure&) -> int {
                     static_cast<Numbers*>(state)->push_back(number);
                     return NPU_OK;
                   },
                   nullptr,
                   &got,
                   {{touched, {8}, {1}, 1, NPU_READ}},
                   77};
  EXPECT_TRUE(submit_foreign(stream, work));
  drain(stream);
  Graph graph;
  capture(graph, stream, [&] {
    EXPECT_TRUE(submit_foreign(stream, work));  // this one has no source
    for (int i = 0; i < 2; ++i) {
      const Draws at = Capture::get().draw(
          &id, [] { return std::make_unique<Source>(0); }, 1);
      work.source = int(at.seed);
      work.number = at.offset;
      EXPECT_TRUE(submit_foreign(stream, work));
    }
  });
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(replay(graph, stream));
  drain(stream);
  EXPECT_EQ(got, Numbers({77, 77, 0, 1, 77, 2, 3}));
}

TEST(Capture, EndsEachOfItsOwnKernelsOnceWithItsGraph) {
  static int ended;
  ended = 0;
  hooks.own_kernel = [](const npu_kernel*) {
    return OwnKernel{&kNoteDraw, [](npu_kernel*) { ++ended; }, -1};
  };
  Numbers got;
  {
    Stream& stream = side_stream();
    Graph graph;
    capture(graph, stream, [&] {
      for (int i = 0; i < 3; ++i) submit(stream, kNoteDraw, {word(&got), 1, 2});
    });
    EXPECT_TRUE(replay(graph, stream));
    drain(stream);
    EXPECT_EQ(ended, 0);
  }
  hooks.own_kernel = nullptr;
  // The graph might have run on any stream.
  synchronize_device(0, WaitReason::kDeviceSync);
  collect_graphs();
  EXPECT_EQ(got.size(), 6);
  EXPECT_EQ(ended, 3);
}

std::string line_;
// The hook stays, because a capture keeps the last line that it was told.
struct Lines {
  Lines() {
    hooks.line = [] { return line_; };
  }
  ~Lines() { line_.clear(); }
};

TEST(Capture, KeepsTheLineOfEachNodeAndNamesThatOfARefusal) {
  Lines lines;
  Stream &a = side_stream(), &b = side_stream();
  Graph graph, other;
  const auto at = [](int line) { line_ = "a.py:" + std::to_string(line); };
  at(1);
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  at(2);
  submit(a, kNothing, {});
  at(3);
  join(a, b);
  at(4);
  EXPECT_REFUSED(forbid_query(a), "at a.py:4, on");
  at(5);
  EXPECT_REFUSED(forbid_anywhere("x", "y"), "a.py:5");
  at(6);
  EXPECT_REFUSED(drain(a), "a.py:6");
  at(7);
  EXPECT_REFUSED(graph.capture_end(b), "a.py:7");
  at(8);
  EXPECT_REFUSED(other.capture_begin(b, 0, CaptureMode::kGlobal), "a.py:8");
  at(9);
  Capture::get().begin_group(a);
  EXPECT_REFUSED(Capture::get().begin_group(a), "a.py:9");
  Capture::get().end_group(a);
  at(10);
  submit(b, kNothing, {});
  join(b, a);
  at(11);
  graph.capture_end(a);

  const auto nodes = describe(*graph.body());
  EXPECT_EQ(nodes.size(), 4);
  EXPECT_EQ(nodes[0].line, "a.py:2");
  EXPECT_EQ(nodes[1].line, "a.py:3");
  EXPECT_EQ(nodes[2].line, "a.py:10");
}

// A wait is a node, too, and must be joined even if it is the only one.
TEST(Capture, EndsAndNamesAStreamThatWasNotJoined) {
  Lines lines;
  for (const bool only_waits : {false, true}) {
    Lanes l;
    l.graph.capture_begin(l.a, 0, CaptureMode::kGlobal);
    submit(l.a, kNothing, {});
    line_ = "b.py:1";
    join(l.a, l.b);
    if (!only_waits) l.append(l.b, 1);
    line_ = "b.py:2";
    const std::string why = refused([&] { l.graph.capture_end(l.a); });
    EXPECT_CONTAINS(why, only_waits ? "last: a wait at b.py:1)"
                                    : "last: test::append at b.py:1)");
    EXPECT_CONTAINS(why, "at b.py:2, on thread");
    EXPECT_TRUE(!l.a.sink() && !l.b.sink() && !active_capture());
    l.append(l.b, 2);
    drain(l.b);
    EXPECT_EQ(l.got, Numbers({2}));
  }
}

TEST(Capture, SaysWhichWaitItRefuses) {
  Stream& stream = side_stream();
  Graph graph;
  capture(graph, stream, [&] {
    for (const auto& [reason, text] :
         {std::pair{WaitReason::kItem, "reading a value"},
          {WaitReason::kCopy, "a blocking copy"},
          {WaitReason::kStreamSync, "waiting for a stream"},
          {WaitReason::kEventSync, "waiting for an event"},
          {WaitReason::kDeviceSync, "torch.npu.synchronize()"},
          {WaitReason::kOperator, "an operator that waits"},
          {WaitReason::kAllocator, "returning memory"},
          {WaitReason::kExit, "waiting for the device"}})
      EXPECT_REFUSED(host_wait(stream, 1, reason), text);
  });
}

}  // namespace
}  // namespace npu
