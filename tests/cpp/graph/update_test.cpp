#include "csrc/graph/update.h"
#include "csrc/graph/lifetime.h"
#include "tests/cpp/graph/lanes.h"

namespace npu {
namespace {

const int64_t kFour[] = {4}, kFive[] = {5}, kStride[] = {1};
const npu_view kResult{kFour, kStride, 1, 8, 0, NPU_WRITE};
const npu_view kLonger{kFive, kStride, 1, 8, 0, NPU_WRITE};
const npu_view kNarrower{kFour, kStride, 1, 4, 0, NPU_WRITE};

// words: result, value
int run_store(const npu_kernel*, const uint64_t* words, npu_failure*) {
  *reinterpret_cast<uint64_t*>(words[0]) = words[1];
  return NPU_OK;
}
const npu_kernel kStore{run_store, "test::store", &kResult, 1};
const npu_kernel kStoreLonger{run_store, "test::store", &kLonger, 1};
const npu_kernel kStoreNarrower{run_store, "test::store", &kNarrower, 1};

// A graph that appends 1 and 2, which may be replaced, then 3, and that stores
// 7.
struct World {
  World() { capture(); }

  void capture() {
    check::capture(graph, captured, [&] {
      Capture::get().begin_group(captured);
      append(captured, got, 1);
      append(captured, got, 2);
      group = Capture::get().end_group(captured);
      append(captured, got, 3);
      Capture::get().begin_group(captured);
      submit(captured, kStore, {word(result.data()), 7});
      stores = Capture::get().end_group(captured);
    });
  }

  Numbers replayed() {
    got.clear();
    EXPECT_TRUE(replay(graph, captured));
    drain(captured);
    return got;
  }
  void update(uint64_t first, uint64_t second) {
    begin_update(updating, graph, group);
    append(updating, got, first);
    append(updating, got, second);
    end_update(updating);
  }

  Numbers got;
  std::array<uint64_t, 5> result{}, other{};
  Stream& captured = side_stream();
  Stream& updating = side_stream();
  std::shared_ptr<Group> group, stores;
  Graph graph;
};

// LeakSanitizer sees what becomes of it.
TEST(Update, IsGivenUpWithItsStream) {
  World w;
  Gate gate;
  hold(w.updating, gate);
  w.update(5, 6);
  w.updating.force_stop();
  gate.open();
  w.updating.clear_error();
  EXPECT_TRUE(w.updating.block().dropped.load() >= 1);
  EXPECT_EQ(w.replayed(), Numbers({1, 2, 3}));
  w.update(5, 6);
  drain(w.updating);
  EXPECT_EQ(w.replayed(), Numbers({5, 6, 3}));
}

TEST(Update, HappensWhenItsStreamComesToIt) {
  World w;
  Gate gate;
  submit(w.updating, kGate, {word(&gate)});
  w.update(4, 5);
  EXPECT_EQ(w.replayed(), Numbers({1, 2, 3}));
  drain(w.updating, gate);

  EXPECT_EQ(w.replayed(), Numbers({4, 5, 3}));
}

// Who watches may run the queue itself, and waits for what it is told of.
TEST(Update, TellsWhoWatchesThatItIsQueued) {
  Watching watching;
  World w;
  {
    const Listed listed(watching, {&w.updating});
    w.update(4, 5);
    drain(w.updating);
  }
  EXPECT_TRUE(watching.told == std::vector<const Stream*>({&w.updating}));
}

TEST(Update, LeavesResultsWhereTheCapturePutThem) {
  World w;
  begin_update(w.updating, w.graph, w.stores);
  submit(w.updating, kStore, {word(w.other.data()), 9});
  end_update(w.updating);
  drain(w.updating);
  w.replayed();

  EXPECT_EQ(w.result[0], 9);
  EXPECT_EQ(w.other[0], 0);
}

TEST(Update, GivesTasksWordsOfZeros) {
  World w;
  begin_update(w.updating, w.graph, w.group);
  for (int i = 0; i < 2; ++i) {
    Submission s;
    EXPECT_TRUE(w.updating.begin(2, s));
    EXPECT_EQ(s.words[0], 0);
    EXPECT_EQ(s.words[1], 0);
    EXPECT_EQ(s.position, uint64_t(i));
    s.task->kernel = &kAppend;
    s.words[0] = word(&w.got);
    s.words[1] = 8;
    w.updating.commit(s);
  }
  end_update(w.updating);
  drain(w.updating);
  EXPECT_EQ(w.replayed(), Numbers({8, 8, 3}));
}

TEST(Update, ChangesNothingWhenTheOperatorsAreOthers) {
  World w;
  // Between a begin and an end, of `group`.
  const auto expect = [&](const std::string& says, const auto& group,
                          const std::function<void(Stream&)>& submissions) {
    begin_update(w.updating, w.graph, group);
    submissions(w.updating);
    EXPECT_REFUSED(end_update(w.updating), says);
    EXPECT_TRUE(w.updating.sink() == nullptr);
    drain(w.updating);
    EXPECT_EQ(w.replayed(), Numbers({1, 2, 3}));
    EXPECT_EQ(w.result[0], 7);
  };
  expect("is test::nothing, not test::append", w.group, [&](Stream& stream) {
    append(stream, w.got, 4);
    submit(stream, kNothing, {0, 0});
  });
  expect("1 operators were called, the group has 2", w.group,
         [&](Stream& stream) { append(stream, w.got, 4); });
  for (const npu_kernel* kernel : {&kStoreLonger, &kStoreNarrower})
    expect("has tensors of other shapes", w.stores, [&](Stream& stream) {
      submit(stream, *kernel, {word(&w.other), 1});
    });
  expect("an event with timing", w.stores, [&](Stream& stream) {
    Event event(Timing::kOn);
    event.record(stream);
    submit(stream, kStore, {word(w.result.data()), 1});
  });
}

TEST(Update, IsRefusedWhereItHasNoMeaning) {
  World w, another;
  Graph empty;
  const auto begin = [](Stream& stream, Graph& graph, const auto& group) {
    return refused([&] { begin_update(stream, graph, group); });
  };
  EXPECT_CONTAINS(begin(w.updating, empty, w.group), "no finished");
  EXPECT_CONTAINS(begin(w.updating, w.graph, another.group),
                  "not of the graph's capture");
  EXPECT_CONTAINS(begin(w.captured, w.graph, w.group),
                  "was captured on this stream");
  EXPECT_REFUSED(end_update(w.updating), "without");

  begin_update(w.updating, w.graph, w.group);
  EXPECT_CONTAINS(begin(w.updating, w.graph, w.group),
                  "has an update under way");
  EXPECT_REFUSED(w.updating.wait_for(w.captured, w.captured.tail()),
                 "a wait between");
  w.graph.reset();
  EXPECT_REFUSED(end_update(w.updating), "is gone");
  EXPECT_TRUE(w.updating.sink() == nullptr);
}

// AddressSanitizer sees what is read of a graph that is gone.
TEST(Update, IsRefusedWhereItsGraphIsDestroyedMeanwhile) {
  auto w = std::make_unique<World>();
  Stream& updating = w->updating;
  begin_update(updating, w->graph, w->group);
  append(updating, w->got, 4);
  w.reset();
  collect_graphs();
  submit(updating, kAppend, {0, 5});
  EXPECT_REFUSED(end_update(updating), "is gone");
  EXPECT_TRUE(updating.sink() == nullptr);
}

// A handle is of one capture, wherever the next one has its groups.
TEST(Update, RefusesTheHandleOfAnEarlierCapture) {
  World w;
  const std::shared_ptr<Group> old = w.group;
  w.graph.reset();
  collect_graphs();
  w.capture();
  EXPECT_REFUSED(begin_update(w.updating, w.graph, old),
                 "not of the graph's capture");
}

// A group that a handle keeps takes no replay with it.
TEST(Update, ThatIsQueuedOutlivesItsGraph) {
  auto w = std::make_unique<World>();
  Stream& updating = w->updating;
  Gate gate;
  hold(updating, gate);
  w->update(4, 5);
  w.reset();
  drain(updating, gate);
  collect_graphs();
}

}  // namespace
}  // namespace npu
