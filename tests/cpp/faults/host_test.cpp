// There is no memory for a queue, or no thread can be started: whoever asks
// gets an error, and goes on when there is one again. Launches without memory
// are tested for each way to launch (tests/cpp/states).
#include "csrc/engine/stillness.h"
#include "csrc/graph/graph.h"
#include "csrc/taskqueue/completion_port.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/no_memory.h"
#include "tests/cpp/system.h"

namespace npu {
namespace {

TEST_ALONE(NoMemory, RefusesAStreamAndMakesItLater) {
  submit(current_stream(0), kNothing, {});
  drain(current_stream(0));
  std::string text;
  {
    const NoMemory none;
    text = thrown([] { find_stream(0, 3 << 5); });
  }
  EXPECT_CONTAINS(text, "npu:0 stream 96: no host memory for its queue");
  Stream& stream = *find_stream(0, 3 << 5);
  Numbers got;
  append(stream, got, 1);
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
  Numbers got;
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  append(stream, got, 1);
  Submission s;
  EXPECT_TRUE(begin(stream, s, kAppend, {word(&got), 2}));
  {
    const NoNew none;
    stream.commit(s);
  }
  EXPECT_REFUSED(graph.capture_end(stream), "no host memory");
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  append(stream, got, 3);
  graph.capture_end(stream);
  EXPECT_TRUE(replay(graph, stream));
  drain(stream);
  EXPECT_EQ(got, Numbers{3});
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
    EXPECT_CONTAINS(thrown([&] { submit(stream, kNothing, {}); }),
                    "npu:0 stream 0: no thread");
    EXPECT_TRUE(takes_signals());
  }
  EXPECT_TRUE(submit(stream, kNothing, {}));
  drain(stream);
}

// The launcher of the first stream stands still by the time the second one
// cannot get its own. Nothing that it stands in may go.
TEST_ALONE(NoThreads, LetGoTheStreamsThatStandStill) {
  Stream &a = side_stream(), &b = side_stream();
  Numbers got;
  append(a, got, 1);
  drain(a);
  {
    const NoThreads none;
    EXPECT_TRUE(!thrown([] { Stillness stillness(0, 1'000'000'000); }).empty());
  }
  EXPECT_TRUE(append(a, got, 2));
  drain(a);
  EXPECT_TRUE(append(b, got, 3));
  drain(b);
  EXPECT_EQ(got, Numbers({1, 2, 3}));
}

// One of a graph's streams has its launcher and the other cannot get one. The
// place that the replay had taken in the first stream must not hold that stream
// up.
TEST_ALONE(NoThreads, LeaveTheOtherStreamsOfAGraphUsable) {
  Stream &a = side_stream(), &b = side_stream();
  Numbers got;
  Graph graph;
  capture_two_lanes(graph, a, b, got);
  append(a, got, 7);
  drain(a);
  {
    const NoThreads none;
    EXPECT_TRUE(!thrown([&] { replay(graph, a); }).empty());
  }
  append(a, got, 8);
  drain(a);
  EXPECT_TRUE(replay(graph, a));
  drain(a);
  EXPECT_EQ(got, Numbers({7, 8, 1, 2, 3}));
}

}  // namespace
}  // namespace npu
