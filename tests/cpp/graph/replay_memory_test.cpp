// What replays of graphs that share a pool overwrite.
#include "csrc/graph/replay_memory.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cpp/check.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::kNothing;
using check::replay;
using check::side_stream;
using check::submit;
using check::wait;

struct Noted final : Contents {
  using Contents::Contents;
  bool held() const override { return is_held; }
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

using Memory = std::shared_ptr<ReplayMemory>;

TEST(ReplayMemory, TellsWhomAReplayOverwrites) {
  const Memory memory = std::make_shared<ReplayMemory>();
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
  const Memory memory = std::make_shared<ReplayMemory>();
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
  Overwrites one(std::make_shared<ReplayMemory>(), {{0, 10}});
  Overwrites other(std::make_shared<ReplayMemory>(), {{0, 10}});
  const auto of_one = contents({{0, 10}});
  one.add(of_one);
  other.replayed();
  EXPECT_EQ(of_one->times, 0);
}

TEST(ReplayMemory, KnowsWhatIsHeldAndForgetsWhatIsOver) {
  const Memory memory = std::make_shared<ReplayMemory>();
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
  const Memory memory = std::make_shared<ReplayMemory>();
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

TEST(ReplayMemory, LetsAStreamWaitForBorrowers) {
  Stream &stream = side_stream(), &borrower = side_stream();
  check::Gate gate;
  submit(borrower, check::kGate, {check::word(&gate)});
  Overwrites graph(std::make_shared<ReplayMemory>(), {{0, 10}});
  const auto lent = contents({{0, 10}});
  graph.add(lent);
  EXPECT_EQ(waits(graph, stream), 0);
  lent->borrower = &borrower;
  EXPECT_EQ(waits(graph, stream), 1);
  EXPECT_EQ(waits(graph, stream), 0);  // once
  gate.open();
  wait(stream);
}

// Nobody knows any more whom they were lent to.
TEST(ReplayMemory, LetsAStreamWaitForAllWhereContentsAreOver) {
  Stream &stream = side_stream(), &other = side_stream();
  Overwrites graph(std::make_shared<ReplayMemory>(), {{0, 10}});
  const auto over = contents({{0, 10}});
  graph.add(over);
  over->is_over = true;
  EXPECT_TRUE(!graph.any_held());
  check::Gate gate;
  submit(other, check::kGate, {check::word(&gate)});
  EXPECT_EQ(waits(graph, stream), 1);
  EXPECT_EQ(waits(graph, stream), 0);  // once
  gate.open();
  wait(stream);
}

TEST(ReplayMemory, IsSharedByTheGraphsOfAPoolAndToldByTheirReplays) {
  Stream& stream = side_stream();
  const uint64_t pool = new_pool();
  Graph graph, same, other;
  for (Graph* g : {&graph, &same, &other}) {
    g->capture_begin(stream, g == &other ? 0 : pool, CaptureMode::kGlobal);
    submit(stream, kNothing, {});
    g->capture_end(stream);
  }
  Overwrites& own = *graph.body()->overwrites;
  EXPECT_TRUE(&own.memory() == &same.body()->overwrites->memory());
  EXPECT_TRUE(&own.memory() != &other.body()->overwrites->memory());
  const auto left = contents({});
  own.add(left);
  EXPECT_TRUE(replay(graph, stream));
  EXPECT_EQ(left->times, 1);
  EXPECT_TRUE(replay(same, stream) && replay(other, stream));
  EXPECT_EQ(left->times, 1);
  wait(stream);
}

// Two graphs of a pool, captured and replayed by threads of their own.
TEST(ReplayMemory, IsThreadSafe) {
  const Memory memory = std::make_shared<ReplayMemory>();
  const auto work = [&] {
    for (int i = 0; i < 200; ++i) {
      Overwrites graph(memory, {{0, 10}});
      const auto left = contents({{0, 10}});
      graph.add(left);
      graph.replayed();
      EXPECT_TRUE(left->times >= 1);
      EXPECT_TRUE(!graph.any_held());
    }
  };
  std::thread other(work);
  work();
  other.join();
}

}  // namespace
}  // namespace npu
