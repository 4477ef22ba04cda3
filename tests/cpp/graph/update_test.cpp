#include "csrc/graph/update.h"

#include <array>
#include <string>
#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/graph/lifetime.h"
#include "csrc/observe/observer.h"
#include "tests/cpp/check.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"

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
    graph.capture_begin(captured, 0, CaptureMode::kGlobal);
    Capture::get().begin_group(captured);
    submit(captured, kAppend, {word(&got), 1});
    submit(captured, kAppend, {word(&got), 2});
    group = Capture::get().end_group(captured);
    submit(captured, kAppend, {word(&got), 3});
    Capture::get().begin_group(captured);
    submit(captured, kStore, {word(result.data()), 7});
    stores = Capture::get().end_group(captured);
    graph.capture_end(captured);
  }

  std::vector<uint64_t> replayed() {
    got.clear();
    Stream* failed = nullptr;
    EXPECT_TRUE(graph.replay(captured, failed));
    wait(captured);
    return got;
  }
  void append(uint64_t first, uint64_t second) {
    begin_update(updating, graph, group);
    submit(updating, kAppend, {word(&got), first});
    submit(updating, kAppend, {word(&got), second});
    end_update(updating);
  }

  std::vector<uint64_t> got;
  std::array<uint64_t, 5> result{}, other{};
  Stream& captured = next_stream(0, StreamPool::kNormal);
  Stream& updating = next_stream(0, StreamPool::kNormal);
  std::shared_ptr<Group> group, stores;
  Graph graph;
};

using Values = std::vector<uint64_t>;

// LeakSanitizer sees what becomes of it.
TEST(Update, IsGivenUpWithItsStream) {
  World w;
  Gate gate;
  hold(w.updating, gate);
  w.append(5, 6);
  w.updating.force_stop();
  gate.open();
  w.updating.clear_error();
  EXPECT_TRUE(w.updating.block().dropped.load() >= 1);
  EXPECT_TRUE(w.replayed() == std::vector<uint64_t>({1, 2, 3}));
  w.append(5, 6);
  wait(w.updating);
  EXPECT_TRUE(w.replayed() == std::vector<uint64_t>({5, 6, 3}));
}

TEST(Update, ReplacesTheArgumentsOfItsGroupAndOfNothingElse) {
  World w;
  EXPECT_TRUE(w.replayed() == Values({1, 2, 3}));
  w.append(9, 9);
  w.append(4, 5);  // the last one counts
  w.got.clear();
  wait(w.updating);
  EXPECT_TRUE(w.got.empty());  // it runs nothing by itself
  EXPECT_TRUE(w.updating.sink() == nullptr);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(w.replayed() == Values({4, 5, 3}));
}

TEST(Update, HappensWhenItsStreamComesToIt) {
  World w;
  Gate gate;
  submit(w.updating, kGate, {word(&gate)});
  w.append(4, 5);
  EXPECT_TRUE(w.replayed() == Values({1, 2, 3}));
  gate.open();
  wait(w.updating);

  EXPECT_TRUE(w.replayed() == Values({4, 5, 3}));
}

// Who watches may run the queue itself, and waits for what it is told of.
TEST(Update, TellsWhoWatchesThatItIsQueued) {
  struct Watching final : Observer {
    std::vector<const Stream*> told;
    void published(Stream& stream, bool) override { told.push_back(&stream); }
  } watching;
  World w;
  list_observer(watching, true);
  w.updating.look_for_observers();
  w.append(4, 5);
  wait(w.updating);
  list_observer(watching, false);
  w.updating.look_for_observers();
  EXPECT_TRUE(watching.told == std::vector<const Stream*>({&w.updating}));
}

TEST(Update, LeavesResultsWhereTheCapturePutThem) {
  World w;
  begin_update(w.updating, w.graph, w.stores);
  submit(w.updating, kStore, {word(w.other.data()), 9});
  end_update(w.updating);
  wait(w.updating);
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
  wait(w.updating);
  EXPECT_TRUE(w.replayed() == Values({8, 8, 3}));
}

TEST(Update, ChangesNothingWhenTheOperatorsAreOthers) {
  World w;
  const auto attempt = [&](const auto& group, auto submissions) {
    begin_update(w.updating, w.graph, group);
    submissions();
    const std::string why = refused([&] { end_update(w.updating); });
    EXPECT_TRUE(w.updating.sink() == nullptr);
    wait(w.updating);
    EXPECT_TRUE(w.replayed() == Values({1, 2, 3}));
    EXPECT_EQ(w.result[0], 7);
    return why;
  };
  EXPECT_TRUE(contains(attempt(w.group,
                               [&] {
                                 submit(w.updating, kAppend, {word(&w.got), 4});
                                 submit(w.updating, kNothing, {0, 0});
                               }),
                       "is test::nothing, not test::append"));
  EXPECT_TRUE(contains(
      attempt(w.group, [&] { submit(w.updating, kAppend, {word(&w.got), 4}); }),
      "1 operators were called, the group has 2"));
  for (const npu_kernel* kernel : {&kStoreLonger, &kStoreNarrower})
    EXPECT_TRUE(contains(
        attempt(w.stores,
                [&] { submit(w.updating, *kernel, {word(&w.other), 1}); }),
        "has tensors of other shapes"));
  EXPECT_TRUE(contains(attempt(w.stores,
                               [&] {
                                 Event event(Timing::kOn);
                                 event.record(w.updating);
                                 submit(w.updating, kStore,
                                        {word(w.result.data()), 1});
                               }),
                       "an event with timing"));
}

TEST(Update, IsRefusedWhereItHasNoMeaning) {
  World w, another;
  Graph empty;
  const auto begin = [](Stream& stream, Graph& graph, const auto& group) {
    return refused([&] { begin_update(stream, graph, group); });
  };
  EXPECT_TRUE(contains(begin(w.updating, empty, w.group), "no finished"));
  EXPECT_TRUE(contains(begin(w.updating, w.graph, another.group),
                       "not of the graph's capture"));
  EXPECT_TRUE(contains(begin(w.captured, w.graph, w.group),
                       "was captured on this stream"));
  EXPECT_TRUE(contains(refused([&] { end_update(w.updating); }), "without"));

  begin_update(w.updating, w.graph, w.group);
  EXPECT_TRUE(
      contains(begin(w.updating, w.graph, w.group), "has an update under way"));
  EXPECT_TRUE(contains(
      refused([&] { w.updating.wait_for(w.captured, w.captured.tail()); }),
      "a wait between"));
  w.graph.reset();
  EXPECT_TRUE(contains(refused([&] { end_update(w.updating); }), "is gone"));
  EXPECT_TRUE(w.updating.sink() == nullptr);
}

// AddressSanitizer sees what is read of a graph that is gone.
TEST(Update, IsRefusedWhereItsGraphIsDestroyedMeanwhile) {
  auto w = std::make_unique<World>();
  Stream& updating = w->updating;
  begin_update(updating, w->graph, w->group);
  submit(updating, kAppend, {word(&w->got), 4});
  w.reset();
  collect_graphs();
  submit(updating, kAppend, {0, 5});
  EXPECT_TRUE(contains(refused([&] { end_update(updating); }), "is gone"));
  EXPECT_TRUE(updating.sink() == nullptr);
}

// A handle is of one capture, wherever the next one has its groups.
TEST(Update, RefusesTheHandleOfAnEarlierCapture) {
  World w;
  const std::shared_ptr<Group> old = w.group;
  w.graph.reset();
  collect_graphs();
  w.capture();
  EXPECT_TRUE(contains(refused([&] { begin_update(w.updating, w.graph, old); }),
                       "not of the graph's capture"));
}

// A group that a handle keeps takes no replay with it.
TEST(Update, ThatIsQueuedOutlivesItsGraph) {
  auto w = std::make_unique<World>();
  Stream& updating = w->updating;
  Gate gate;
  hold(updating, gate);
  w->append(4, 5);
  w.reset();
  gate.open();
  wait(updating);
  collect_graphs();
}

}  // namespace
}  // namespace npu
