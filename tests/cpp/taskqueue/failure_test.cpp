// Tasks that fail, and what waits for them.
#include <atomic>
#include <thread>
#include <vector>

#include "csrc/observe/observer.h"
#include "csrc/taskqueue/completion_port.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// What a stream does once it has failed is tested for each way to launch
// (tests/cpp/states).
TEST(Failure, SaysWhereAndWithWhatAndIsCountedByItsCode) {
  Stream stream(0, 3, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  submit(stream, kAppend, {word(&got), 1});
  submit(stream, kFail, {NPU_INDEX_ERROR});
  drain(stream);
  EXPECT_TRUE(stream.failed());
  EXPECT_EQ(stream.error()->task, 1);
  EXPECT_EQ(stream.error()->op, "test::fail");
  EXPECT_EQ(stream.error()->message(),
            "npu:0 stream 3 task 1: test::fail failed: asked to");
  stream.clear_error();
  EXPECT_TRUE(!stream.failed() && stream.error() == nullptr);
  EXPECT_EQ(stream.block().state.load(), uint32_t(StreamState::kRunning));
  submit(stream, kFail, {9999});  // of no known code
  drain(stream);
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
  Submission s;
  EXPECT_TRUE(stream.begin(2, s, {7, 11}));
  s.task->kernel = &kernel;
  s.words[0] = NPU_ERROR;
  s.words[1] = 0;
  stream.commit(s);
  drain(stream);

  const auto error = stream.error();

  EXPECT_EQ(error->site.site, 7);
  EXPECT_EQ(error->site.forward, 11);
  EXPECT_EQ(error->arguments, "[4, 2] [9]");
}

TEST(Failure, DropsAndCountsTheTasksQueuedBehindIt) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  submit(stream, kFail, {NPU_VALUE_ERROR});
  submit(stream, kFail, {NPU_TYPE_ERROR});
  for (uint64_t i = 0; i < 5; ++i) submit(stream, kAppend, {word(&got), i}, 50);
  gate.open();
  drain(stream);

  EXPECT_EQ(stream.error()->code, int(NPU_VALUE_ERROR));  // the first one
  EXPECT_EQ(got.size(), 0);
  EXPECT_EQ(stream.block().failed.load(), 1);
  EXPECT_EQ(stream.block().dropped.load(), 6);
  EXPECT_EQ(stream.block().state.load(), uint32_t(StreamState::kFailed));
}

// A thread that sees the number sees the failure with it: completions are
// delivered from within the advance.
TEST(Failure, IsKnownWhenItsNumberIsToldToWaiters) {
  for (const StreamMode mode : {StreamMode::kQueued, StreamMode::kInline}) {
    CompletionPort* const port = CompletionPort::make();
    {
      Stream stream(0, 0, 0, mode);
      EXPECT_TRUE(stream.notify(1, *port, 0));
      submit(stream, kFail, {NPU_ERROR});
      drain(stream);
    }
    const auto completion = port->take();
    EXPECT_TRUE(completion && completion->error);
    port->release();
  }
}

TEST(Failure, FollowsAWaitOnTheFailedStream) {
  Stream first(0, 1, 0, StreamMode::kQueued);
  Stream second(0, 2, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  Gate gate;
  submit(first, kGate, {word(&gate)});
  submit(first, kFail, {NPU_INDEX_ERROR});
  EXPECT_TRUE(second.wait_for(first, first.tail()));
  submit(second, kAppend, {word(&got), 1});
  gate.open();
  drain(second);

  EXPECT_EQ(got.size(), 0);
  EXPECT_EQ(second.error()->code, int(NPU_INDEX_ERROR));
  EXPECT_TRUE(contains(second.error()->text, "npu:0 stream 1 task 1"));
  EXPECT_TRUE(contains(second.error()->text, "asked to"));
  EXPECT_EQ(second.error()->op, "wait");
  EXPECT_EQ(second.error()->arguments, "");
}

TEST(Failure, DoesNotFollowAWaitForWhatWasDoneBeforeIt) {
  Stream first(0, 1, 0, StreamMode::kQueued);
  Stream second(0, 2, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  submit(first, kAppend, {word(&got), 1});
  const uint64_t number = first.tail();
  submit(first, kFail, {NPU_ERROR});
  drain(first);

  EXPECT_TRUE(second.wait_for(first, number));
  EXPECT_TRUE(submit(second, kAppend, {word(&got), 2}));
  drain(second);

  EXPECT_TRUE(!second.failed());
  EXPECT_EQ(got.size(), 2);
}

TEST(Failure, RefusesAnEventOnTheFailedStream) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  submit(stream, kFail, {NPU_ERROR});
  drain(stream);
  for (const Timing timing : {Timing::kOff, Timing::kOn}) {
    Event event(timing);
    EXPECT_TRUE(!event.record(stream) && !event.recorded());
  }
}

// The leak checker sees the dropped task's share of the time cell.
TEST(Failure, ReleasesTheTimeOfADroppedEvent) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  submit(stream, kFail, {NPU_ERROR});
  Event event(Timing::kOn);
  EXPECT_TRUE(event.record(stream));
  gate.open();
  event.synchronize();

  EXPECT_TRUE(event.done());
  EXPECT_EQ(event.time_ns(), 0);
}

int run_silent_failure(const npu_kernel*, const uint64_t*, npu_failure*) {
  return NPU_ERROR;
}
constexpr npu_kernel kSilent{run_silent_failure, "test::silent", nullptr, 0};

TEST(Failure, HasAnEmptyTextWhenTheKernelGaveNone) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  submit(stream, kFail, {NPU_ERROR});
  drain(stream);
  stream.clear_error();
  submit(stream, kSilent, {});
  drain(stream);

  EXPECT_EQ(stream.error()->text, "");
}

// The other stream belongs to a device that was not stopped, and may never end.
TEST(Failure, ByAStopEndsAWaitForAnotherStream) {
  Stream first(0, 1, 0, StreamMode::kQueued);
  Stream second(0, 2, 0, StreamMode::kQueued);
  Gate gate;
  hold(first, gate);
  EXPECT_TRUE(second.wait_for(first, first.tail()));
  second.force_stop();
  EXPECT_TRUE(second.retired().sleep(second.tail(), 100'000'000'000));
  EXPECT_EQ(first.retired().value(), 0);
  second.clear_error();
  gate.open();
  std::vector<uint64_t> got;
  submit(second, kAppend, {word(&got), 1});
  drain(second);
  EXPECT_EQ(got.size(), 1);
  drain(first);
}

TEST(Wait, ForNothingThatIsLeftIsNoTask) {
  Stream first(0, 1, 0, StreamMode::kQueued);
  Stream second(0, 2, 0, StreamMode::kQueued);
  submit(first, kNothing, {});
  drain(first);
  EXPECT_TRUE(second.wait_for(first, 1));
  EXPECT_TRUE(first.wait_for(first, 7));  // it is behind itself anyway
  EXPECT_TRUE(second.tail() == 0 && first.tail() == 1);

  // While it is observed, a wait for what is over is a task all the same.
  Observer observer;
  list_observer(observer, true);
  EXPECT_TRUE(second.wait_for(first, 1));
  EXPECT_EQ(second.tail(), 1);
  drain(second);
  list_observer(observer, false);

  submit(second, kFail, {NPU_ERROR});
  drain(second);
  const uint64_t tail = second.tail();
  EXPECT_TRUE(!second.wait_for(second, 1));
  EXPECT_TRUE(!second.wait_for(first, 1));
  EXPECT_TRUE(!second.wait_for(first, 9));
  EXPECT_EQ(second.tail(), tail);
}

// A point of a graph's capture marks nothing once the capture is over.
TEST(Wait, ForAPointOfACaptureThatIsOverIsRefused) {
  Stream first(0, 1, 0, StreamMode::kQueued);
  Stream second(0, 2, 0, StreamMode::kQueued);
  EXPECT_THROWS(second.wait_for(first, kCapturedNumber | uint64_t{1} << 32),
                CaptureError);
  EXPECT_EQ(second.tail(), 0);
}

}  // namespace
}  // namespace npu
