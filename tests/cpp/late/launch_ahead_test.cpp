// Tasks on a device on which they end when the test says so.
#include "csrc/taskqueue/launch_ahead.h"
#include "csrc/graph/graph.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/drivers/by_hand.h"

namespace npu {
namespace {

constexpr uint64_t kLongestNs = 100'000'000'000;

void submit_five(Stream& stream, Numbers& got) {
  for (uint64_t i = 0; i < 5; ++i) EXPECT_TRUE(append(stream, got, i));
}

TEST(LaunchAhead, StartsTasksBehindOnesThatHaveNotEnded) {
  Streams s;
  submit_five(s.one, s.got);

  EXPECT_EQ(by_hand::wait_until_started(5), 5);
  EXPECT_EQ(s.one.retired().value(), 0);

  by_hand::end(2);
  EXPECT_TRUE(s.one.retired().sleep(2, kLongestNs));
  EXPECT_EQ(s.one.retired().value(), 2);
  EXPECT_EQ(s.got, Numbers({0, 1}));

  by_hand::end(3);
  drain(s.one);
  EXPECT_EQ(s.got, Numbers({0, 1, 2, 3, 4}));
}

TEST(LaunchAhead, AnEventIsDoneWhenWhatIsBeforeItHasEnded) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Event early(Timing::kOn), late(Timing::kOn);
  submit(stream, kNothing, {});
  early.record(stream);
  submit(stream, kNothing, {});
  late.record(stream);
  submit(stream, kNothing, {});
  EXPECT_EQ(by_hand::wait_until_started(3), 3);
  EXPECT_TRUE(!early.done());

  by_hand::end(1);
  early.synchronize();
  EXPECT_TRUE(early.done());
  EXPECT_TRUE(!late.done());

  by_hand::end(2);
  late.synchronize();
  EXPECT_TRUE(early.time_ns() > 0 && early.time_ns() <= late.time_ns());
  drain(stream);
}

TEST(LaunchAhead, AWaitForAnotherStreamBeginsWhenAllBeforeItHasEnded) {
  Stream first(0, 0, 0, StreamMode::kQueued);
  Stream second(0, 1, 0, StreamMode::kQueued);
  Numbers got;
  append(second, got, 1);
  EXPECT_EQ(by_hand::wait_until_started(1), 1);
  append(first, got, 2);
  EXPECT_EQ(by_hand::wait_until_started(2), 2);
  second.wait_for(first, first.tail());
  append(second, got, 3);

  by_hand::end(1);
  EXPECT_TRUE(second.retired().sleep(1, kLongestNs));
  EXPECT_EQ(by_hand::in_flight(), 1);
  by_hand::end(1);
  drain(first);
  EXPECT_EQ(by_hand::wait_until_started(1), 1);
  by_hand::end(1);
  drain(second);

  EXPECT_EQ(got, Numbers({1, 2, 3}));
}

TEST(LaunchAhead, AFailureGivesUpWhatIsBehindIt) {
  const size_t resets = by_hand::wait_until_reset(0);
  Streams s;
  submit_five(s.one, s.got);
  EXPECT_EQ(by_hand::wait_until_started(5), 5);

  by_hand::end(1);
  by_hand::fail("lightning");
  EXPECT_TRUE(s.one.retired().sleep(5, kLongestNs));

  EXPECT_EQ(by_hand::wait_until_reset(resets + 1), resets + 1);
  EXPECT_EQ(s.got, Numbers({0}));
  const auto error = s.one.error();
  EXPECT_TRUE(error && error->task == 1 && error->text == "lightning");
  EXPECT_EQ(s.one.block().dropped.load(), 3);

  s.one.clear_error();
  append(s.one, s.got, 9);
  EXPECT_EQ(by_hand::wait_until_started(1), 1);
  by_hand::end(1);
  drain(s.one);
  EXPECT_EQ(s.got, Numbers({0, 9}));
}

// Five tasks, or the five nodes of a replay.
struct Five {
  Numbers got;
  Stream& stream = side_stream();
  Graph graph;
  explicit Five(bool replayed = true) {
    if (!replayed) {
      submit_five(stream, got);
      return;
    }
    capture(graph, stream, [&] { submit_five(stream, got); });
    replay(graph, stream);
  }
};

TEST(RunAhead, AReplayStartsItsKernelsBehindOneAnother) {
  Five five;
  EXPECT_EQ(by_hand::wait_until_started(5), 5);
  by_hand::end(4);
  EXPECT_EQ(five.stream.retired().value(), five.stream.tail() - 1);
  by_hand::end(1);
  drain(five.stream);
  EXPECT_EQ(five.got, Numbers({0, 1, 2, 3, 4}));
}

TEST(RunAhead, ABusyDeviceGetsTheNextKernelWhenOneHasEnded) {
  by_hand::set_room(2);
  for (const bool replayed : {false, true}) {
    Five five(replayed);
    for (size_t left = 5; left; --left) {
      const size_t most = left < 2 ? left : 2;
      EXPECT_EQ(by_hand::wait_until_started(most), most);
      by_hand::end(1);
    }
    drain(five.stream);
    EXPECT_EQ(five.got, Numbers({0, 1, 2, 3, 4}));
  }
  by_hand::set_room(1000);
}

TEST(RunAhead, AFailureNamesTheNode) {
  Five five;
  EXPECT_EQ(by_hand::wait_until_started(5), 5);
  by_hand::end(2);
  by_hand::fail("lightning");
  EXPECT_TRUE(five.stream.retired().sleep(five.stream.tail(), kLongestNs));

  const auto error = five.stream.error();
  EXPECT_TRUE(error && contains(error->text, "node 2, test::append"));
  EXPECT_EQ(five.got, Numbers({0, 1}));
  five.stream.clear_error();
}

TEST(Stream, ThatGetsNoQueueIsNotShown) {
  by_hand::set_queues(false);
  EXPECT_THROWS(Stream(0, 3, 0, StreamMode::kQueued), std::runtime_error);
  by_hand::set_queues(true);
  Stream stream(0, 4, 0, StreamMode::kQueued);
  for (const StreamBlock& block : segment().streams)
    EXPECT_TRUE(block.state.load() == uint32_t(StreamState::kUnused) ||
                block.stream_id != 3);
}

}  // namespace
}  // namespace npu
