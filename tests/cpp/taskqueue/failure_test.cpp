// Tasks that fail, and what waits for them.
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

// What a stream does once it has failed is tested for each way to launch
// (tests/cpp/states).
TEST(Failure, SaysWhereAndWithWhatAndIsCountedByItsCode) {
  Stream stream(0, 3, 0, StreamMode::kQueued);
  Numbers got;
  append(stream, got, 1);
  fail(stream, NPU_INDEX_ERROR);
  EXPECT_TRUE(stream.failed());
  EXPECT_EQ(stream.error()->task, 1);
  EXPECT_EQ(stream.error()->op, "test::fail");
  EXPECT_EQ(stream.error()->message(),
            "npu:0 stream 3 task 1: test::fail failed: asked to");
  stream.clear_error();
  EXPECT_TRUE(!stream.failed() && stream.error() == nullptr);
  EXPECT_EQ(stream.block().state.load(), uint32_t(StreamState::kRunning));
  fail(stream, npu_code(9999));  // of no known code
  EXPECT_EQ(stream.error()->code, int(NPU_ERROR));
  EXPECT_EQ(stream.block().errors[NPU_INDEX_ERROR].load(), 1);
  EXPECT_EQ(stream.block().errors[NPU_ERROR].load(), 1);
}

TEST(Failure, TellsWhereTheTaskWasLaunchedAndWithWhichShapes) {
  const int64_t sizes[] = {4, 2, 9}, strides[] = {2, 1, 1};
  const npu_view views[] = {{sizes, strides, 2, 4, 0, NPU_READ},
                            {sizes + 2, strides, 1, 4, 1, NPU_WRITE}};
  const npu_kernel kernel{run_fail, "test::shaped", views, 2};
  Stream stream(0, 0, 0, StreamMode::kQueued);
  submit(stream, kernel, {NPU_ERROR, 0}, 0, {7, 11});
  drain(stream);
  const auto error = stream.error();
  EXPECT_TRUE(error->site.site == 7 && error->site.forward == 11);
  EXPECT_EQ(error->arguments, "[4, 2] [9]");
}

TEST(Failure, DropsAndCountsTheTasksQueuedBehindIt) {
  Streams s;
  submit(s.one, kGate, {word(&s.gate)});
  submit(s.one, kFail, {NPU_VALUE_ERROR});
  submit(s.one, kFail, {NPU_TYPE_ERROR});
  for (uint64_t i = 0; i < 5; ++i)
    submit(s.one, kAppend, {word(&s.got), i}, 50);
  drain(s.one, s.gate);
  EXPECT_EQ(s.one.error()->code, int(NPU_VALUE_ERROR));  // the first one
  EXPECT_EQ(s.got.size(), 0);
  EXPECT_EQ(s.one.block().failed.load(), 1);
  EXPECT_EQ(s.one.block().dropped.load(), 6);
  EXPECT_EQ(s.one.block().state.load(), uint32_t(StreamState::kFailed));
}

TEST(Failure, FollowsAWaitOnTheFailedStream) {
  Streams s;
  submit(s.one, kGate, {word(&s.gate)});
  submit(s.one, kFail, {NPU_INDEX_ERROR});
  EXPECT_TRUE(s.two.wait_for(s.one, s.one.tail()));
  append(s.two, s.got, 1);
  drain(s.two, s.gate);
  EXPECT_EQ(s.got.size(), 0);
  const auto error = s.two.error();
  EXPECT_EQ(error->code, int(NPU_INDEX_ERROR));
  EXPECT_CONTAINS(error->text, "npu:0 stream 1 task 1");
  EXPECT_CONTAINS(error->text, "asked to");
  EXPECT_EQ(error->op, "wait");
  EXPECT_EQ(error->arguments, "");
}

TEST(Failure, DoesNotFollowAWaitForWhatWasDoneBeforeIt) {
  Streams s;
  append(s.one, s.got, 1);
  fail(s.one);
  EXPECT_TRUE(s.two.wait_for(s.one, 1));
  EXPECT_TRUE(append(s.two, s.got, 2));
  drain(s.two);
  EXPECT_TRUE(!s.two.failed());
  EXPECT_EQ(s.got.size(), 2);
}

TEST(Failure, RefusesAnEventOnTheFailedStream) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  fail(stream);
  for (const Timing timing : {Timing::kOff, Timing::kOn}) {
    Event event(timing);
    EXPECT_TRUE(!event.record(stream) && !event.recorded());
  }
}

// The leak checker sees the dropped task's share of the time cell.
TEST(Failure, ReleasesTheTimeOfADroppedEvent) {
  Streams s;
  submit(s.one, kGate, {word(&s.gate)});
  submit(s.one, kFail, {NPU_ERROR});
  Event event(Timing::kOn);
  EXPECT_TRUE(event.record(s.one));
  s.gate.open();
  event.synchronize();
  EXPECT_TRUE(event.done());
  EXPECT_EQ(event.time_ns(), 0);
}

TEST(Failure, HasAnEmptyTextWhenTheKernelGaveNone) {
  static constexpr npu_kernel kSilent{
      [](const npu_kernel*, const uint64_t*, npu_failure*) {
        return int(NPU_ERROR);
      },
      "test::silent", nullptr, 0};
  Stream stream(0, 0, 0, StreamMode::kQueued);
  fail(stream);
  stream.clear_error();
  submit(stream, kSilent, {});
  drain(stream);
  EXPECT_EQ(stream.error()->text, "");
}

// The other stream belongs to a device that was not stopped, and may never end.
TEST(Failure, ByAStopEndsAWaitForAnotherStream) {
  Streams s;
  hold(s.one, s.gate);
  EXPECT_TRUE(s.two.wait_for(s.one, s.one.tail()));
  s.two.force_stop();
  EXPECT_TRUE(s.two.retired().sleep(s.two.tail(), 100'000'000'000));
  EXPECT_EQ(s.one.retired().value(), 0);
  s.two.clear_error();
  s.gate.open();
  EXPECT_TRUE(works(s.two));
  drain(s.one);
}

TEST(Wait, ForNothingThatIsLeftIsNoTask) {
  Streams s;
  submit(s.one, kNothing, {});
  drain(s.one);
  EXPECT_TRUE(s.two.wait_for(s.one, 1));
  EXPECT_TRUE(s.one.wait_for(s.one, 7));  // it is behind itself anyway
  EXPECT_TRUE(s.two.tail() == 0 && s.one.tail() == 1);

  // While it is observed, a wait for what is over is a task all the same.
  Observer observer;
  list_observer(observer, true);
  EXPECT_TRUE(s.two.wait_for(s.one, 1));
  EXPECT_EQ(s.two.tail(), 1);
  drain(s.two);
  list_observer(observer, false);

  fail(s.two);
  const uint64_t tail = s.two.tail();
  EXPECT_TRUE(!s.two.wait_for(s.two, 1));
  EXPECT_TRUE(!s.two.wait_for(s.one, 1));
  EXPECT_TRUE(!s.two.wait_for(s.one, 9));
  EXPECT_EQ(s.two.tail(), tail);
}

// A point of a graph's capture marks nothing once the capture is over.
TEST(Wait, ForAPointOfACaptureThatIsOverIsRefused) {
  Streams s;
  EXPECT_THROWS(s.two.wait_for(s.one, kCapturedNumber | uint64_t{1} << 32),
                CaptureError);
  EXPECT_EQ(s.two.tail(), 0);
}

}  // namespace
}  // namespace npu
