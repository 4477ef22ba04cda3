// What a graph does where memory that it uses and does not own has been freed.
#include "csrc/graph/inputs.h"

#include <string>

#include "csrc/graph/update.h"
#include "tests/cpp/check.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::contains;
using check::refused;
using check::side_stream;
using check::submit;
using check::wait;
using check::word;

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
struct World {
  explicit World(bool check_inputs = true) {
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
    wait(updating);
  }
  // What the stream has failed with; "" where it has not.
  std::string replayed() {
    EXPECT_TRUE(check::replay(graph, captured));
    wait(captured);
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
    World w;
    EXPECT_TRUE(w.replayed().empty() && w.b == 1 && w.d == 3);
    World::free(which == 0 ? w.a : which == 1 ? w.b : w.d);
    EXPECT_TRUE(contains(refused([&] { w.replayed(); }), "has been freed"));
  }
}

TEST(Inputs, AReplayFailsAtAGroupWhoseArgumentIsFreed) {
  World w;
  World::free(w.c);
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(contains(w.replayed(),
                         "node 1, test::move: a tensor that it uses has been "
                         "freed; keep the arguments"));
  EXPECT_EQ(w.d, 0);
  w.update(w.e);
  EXPECT_TRUE(w.replayed().empty() && w.d == 5);
  World::free(w.e);
  EXPECT_TRUE(contains(w.replayed(), "has been freed"));
}

TEST(Inputs, AnUpdateWatchesItsArgumentsFromTheirCallOn) {
  World w;
  begin_update(w.updating, w.graph, w.group);
  submit(w.updating, kMove, {word(&w.e), word(&w.unused)});
  World::free(w.e);
  World::free(w.unused);  // the result stays where the capture put it
  end_update(w.updating);
  EXPECT_TRUE(w.replayed().empty() || w.d == 0);
  wait(w.updating);
  EXPECT_TRUE(contains(w.replayed(), "has been freed"));
}

TEST(Inputs, WhatIsFreedOnceTheReplayIsQueuedIsUsed) {
  World w;
  check::Gate gate;
  submit(w.captured, check::kGate, {word(&gate)});
  gate.wait_until_entered();
  EXPECT_TRUE(check::replay(w.graph, w.captured));
  World::free(w.c);
  gate.open();
  wait(w.captured);
  EXPECT_TRUE(!w.captured.error() && w.d == 3);
  EXPECT_TRUE(contains(w.replayed(), "has been freed"));
}

TEST(Inputs, AreNotCheckedWhereTheCaptureSaysSo) {
  World w(false);
  for (const uint64_t* number : {&w.a, &w.b, &w.c, &w.d}) World::free(*number);
  EXPECT_TRUE(w.replayed().empty() && w.b == 1 && w.d == 3);
  w.update(w.e);
  World::free(w.e);
  EXPECT_TRUE(w.replayed().empty() && w.d == 5);
}

}  // namespace
}  // namespace npu
