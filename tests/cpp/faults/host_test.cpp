// There is no memory for a queue, or no thread can be started: whoever asks
// gets an error, and goes on when there is one again. Launches without memory
// are tested for each way to launch (tests/cpp/states).
#include <signal.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/graph/graph.h"
#include "csrc/taskqueue/completion_port.h"
#include "csrc/torch/stillness.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/no_memory.h"
#include "tests/cpp/no_threads.h"

namespace npu {
namespace {

template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST_ALONE(NoMemory, RefusesAStreamAndMakesItLater) {
  submit(current_stream(0), kNothing, {});
  drain(current_stream(0));
  std::string text;
  {
    const NoMemory none;
    text = refusal([] { find_stream(0, 3 << 5); });
  }
  EXPECT_TRUE(contains(text, "npu:0 stream 96: no host memory for its queue"));
  Stream& stream = *find_stream(0, 3 << 5);
  std::vector<uint64_t> got;
  submit(stream, kAppend, {word(&got), 1});
  drain(stream);
  EXPECT_EQ(got.size(), 1);
}

// Nobody could tell a launcher what to do about it: it passes failures on, to
// the streams and the event loops that wait for it.
TEST_ALONE(NoMemory, LetsALauncherPassAFailureOn) {
  Stream &failing = side_stream(), &waiting = side_stream();
  std::unique_ptr<CompletionPort, void (*)(CompletionPort*)> port(
      CompletionPort::make(), [](CompletionPort* p) { p->release(); });
  CompletionPtr completion;
  Gate gate;
  submit(failing, kGate, {word(&gate)});
  submit(failing, kFail, {NPU_INDEX_ERROR});
  EXPECT_TRUE(waiting.wait_for(failing, 2));
  EXPECT_TRUE(failing.notify(2, *port, 7));
  gate.wait_until_entered();
  {
    const NoNew none;
    gate.open();
    while (!waiting.failed()) pause();
    while (!(completion = port->take())) pause();
  }
  drain(waiting);
  EXPECT_EQ(waiting.error()->code, int(NPU_OUT_OF_MEMORY));
  EXPECT_EQ(waiting.error()->cause->code, int(NPU_INDEX_ERROR));
  EXPECT_EQ(completion->token, 7);
  EXPECT_EQ(completion->error->code, int(NPU_INDEX_ERROR));
  failing.clear_error();
  waiting.clear_error();
}

// The graph owns the task before anybody can refuse it.
TEST_ALONE(NoMemory, EndsACaptureInAnErrorAndTheNextOneWorks) {
  Stream& stream = side_stream();
  std::vector<uint64_t> got;
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  submit(stream, kAppend, {word(&got), 1});
  Submission s;
  EXPECT_TRUE(stream.begin(2, s));
  s.task->kernel = &kAppend;
  s.words[0] = word(&got);
  s.words[1] = 2;
  {
    const NoNew none;
    stream.commit(s);
  }
  EXPECT_TRUE(
      contains(refused([&] { graph.capture_end(stream); }), "no host memory"));
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  submit(stream, kAppend, {word(&got), 3});
  graph.capture_end(stream);
  EXPECT_TRUE(replay(graph, stream));
  drain(stream);
  EXPECT_TRUE(got == std::vector<uint64_t>{3});
}

bool takes_signals() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return !sigismember(&blocked, SIGINT) && !sigismember(&blocked, SIGTERM);
}

TEST_ALONE(NoThreads, RefuseTheTaskAndLeaveTheCallerItsSignals) {
  Stream& stream = current_stream(0);
  {
    const NoThreads none;
    EXPECT_TRUE(contains(refusal([&] { submit(stream, kNothing, {}); }),
                         "npu:0 stream 0: no thread"));
    EXPECT_TRUE(takes_signals());
  }
  EXPECT_TRUE(submit(stream, kNothing, {}));
  wait(stream);
}

// The launcher of the first stream stands still by the time the second one
// cannot get its own. Nothing that it stands in may go.
TEST_ALONE(NoThreads, LetGoTheStreamsThatStandStill) {
  Stream &a = side_stream(), &b = side_stream();
  std::vector<uint64_t> got;
  submit(a, kAppend, {word(&got), 1});
  wait(a);
  {
    const NoThreads none;
    EXPECT_TRUE(
        !refusal([] { Stillness stillness(0, 1'000'000'000); }).empty());
  }
  EXPECT_TRUE(submit(a, kAppend, {word(&got), 2}));
  wait(a);
  EXPECT_TRUE(submit(b, kAppend, {word(&got), 3}));
  wait(b);
  EXPECT_TRUE(got == std::vector<uint64_t>({1, 2, 3}));
}

// One of a graph's streams has its launcher and the other cannot get one. The
// place that the replay had taken in the first stream must not hold that stream
// up.
TEST_ALONE(NoThreads, LeaveTheOtherStreamsOfAGraphUsable) {
  Stream &a = side_stream(), &b = side_stream();
  std::vector<uint64_t> got;
  Graph graph;
  capture_two_lanes(graph, a, b, got);
  submit(a, kAppend, {word(&got), 7});
  wait(a);
  {
    const NoThreads none;
    EXPECT_TRUE(!refusal([&] { replay(graph, a); }).empty());
  }
  submit(a, kAppend, {word(&got), 8});
  wait(a);
  EXPECT_TRUE(replay(graph, a));
  wait(a);
  EXPECT_TRUE(got == std::vector<uint64_t>({7, 8, 1, 2, 3}));
}

}  // namespace
}  // namespace npu
