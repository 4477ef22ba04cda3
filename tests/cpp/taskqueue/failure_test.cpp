#include <atomic>
#include <thread>
#include <vector>

#include "csrc/taskqueue/completion_port.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::drain;
using check::Gate;
using check::kAppend;
using check::kFail;
using check::kGate;
using check::submit;
using check::word;

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(Failure, StaysWithItsStreamUntilCleared) {
  Stream stream(0, 3, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  submit(stream, kAppend, {word(&got), 1});
  submit(stream, kFail, {NPU_INDEX_ERROR});
  drain(stream);

  EXPECT_TRUE(stream.failed());
  const auto error = stream.error();
  EXPECT_EQ(error->code, int(NPU_INDEX_ERROR));
  EXPECT_EQ(error->task, 1);
  EXPECT_EQ(error->op, "test::fail");
  EXPECT_EQ(error->message(),
            "npu:0 stream 3 task 1: test::fail failed: asked to");

  EXPECT_TRUE(!submit(stream, kAppend, {word(&got), 2}));
  EXPECT_EQ(stream.tail(), 2);
  stream.clear_error();

  EXPECT_TRUE(!stream.failed());
  EXPECT_TRUE(stream.error() == nullptr);
  EXPECT_TRUE(submit(stream, kAppend, {word(&got), 3}));
  drain(stream);
  EXPECT_EQ(got.size(), 2);
}

TEST(Failure, TellsWhereTheTaskWasLaunchedAndWithWhichShapes) {
  const int64_t sizes[] = {4, 2, 9}, strides[] = {2, 1, 1};
  const npu_view views[] = {{sizes, strides, 2, 4, 0, NPU_READ},
                            {sizes + 2, strides, 1, 4, 1, NPU_WRITE}};
  const npu_kernel kernel{check::run_fail, "test::shaped", views, 2};
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

// A thread that only looks at the number sees the failure with it, however soon
// it looks.
TEST(Failure, IsSeenByWhoeverSeesItsNumber) {
  for (const StreamMode mode : {StreamMode::kQueued, StreamMode::kInline}) {
    for (int i = 0; i < 200; ++i) {
      Stream stream(0, 0, 0, mode);
      std::atomic<bool> looks{false}, failed{false};
      std::thread watcher([&] {
        looks = true;
        while (!stream.retired().reached(1)) {
        }
        failed = stream.failed();
      });
      while (!looks) std::this_thread::yield();
      submit(stream, kFail, {NPU_ERROR});
      watcher.join();
      EXPECT_TRUE(failed);
    }
  }
}

// The same without a race: completions are delivered from within the advance.
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

  Event plain(Timing::kOff), timed(Timing::kOn);
  EXPECT_TRUE(!plain.record(stream));
  EXPECT_TRUE(!timed.record(stream));
  EXPECT_TRUE(!plain.recorded());
  EXPECT_TRUE(!timed.recorded());
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

TEST(Failure, OfAnInlineStreamRefusesLaterTasks) {
  Stream stream(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;
  submit(stream, kFail, {NPU_NOT_IMPLEMENTED});

  EXPECT_EQ(stream.error()->code, int(NPU_NOT_IMPLEMENTED));
  EXPECT_TRUE(!submit(stream, kAppend, {word(&got), 1}));
  EXPECT_EQ(stream.block().failed.load(), 1);
  stream.clear_error();
  EXPECT_TRUE(submit(stream, kAppend, {word(&got), 1}));
  EXPECT_EQ(got.size(), 1);
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

}  // namespace
}  // namespace npu
