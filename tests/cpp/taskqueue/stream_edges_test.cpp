// The less common paths of a stream: several streams at once, nothing to wait
// for, failures, and what its statistics and its thread show.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "csrc/engine/blocking.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/completion_port.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::drain;
using check::Gate;
using check::kAppend;
using check::kFail;
using check::kGate;
using check::kNothing;
using check::submit;
using check::word;

using Opened = Stream::Opened;

TEST(TryBegin, OpensATaskOrSaysWhyNot) {
  Stream stream(0, 0, 0, StreamMode::kQueued, 4);
  std::vector<uint64_t> got;
  Gate gate;
  Submission s;
  EXPECT_TRUE(stream.try_begin(1, s, {3, 4}) == Opened::kYes);
  EXPECT_TRUE(s.position == 0 && s.task->site == 3 &&
              s.task->forward_site == 4);
  s.task->kernel = &kGate;
  s.words[0] = word(&gate);
  stream.commit(s);
  gate.wait_until_entered();
  for (const uint32_t words : {2, 100, 2}) {
    EXPECT_TRUE(stream.try_begin(words, s, {}) == Opened::kYes);
    EXPECT_EQ(s.task->marks.spilled, words == 100);
    s.task->kernel = &kAppend;
    s.words[0] = word(&got);
    s.words[1] = words;
    if (words == 100) {
      stream.cancel(s);  // its place does nothing
    } else {
      stream.commit(s);
    }
  }
  EXPECT_TRUE(stream.try_begin(1, s, {}) == Opened::kFull);
  EXPECT_EQ(stream.tail(), 4);
  gate.open();
  stream.wait_for_room();
  EXPECT_TRUE(stream.try_begin(0, s, {}) == Opened::kYes);
  stream.cancel(s);
  drain(stream);
  EXPECT_TRUE(got == std::vector<uint64_t>({2, 2}));
  submit(stream, kFail, {NPU_ERROR});
  drain(stream);
  EXPECT_TRUE(stream.try_begin(0, s, {}) == Opened::kFailed);
}

TEST(TryBegin, WaitsForRoomOnlyWhereThereIsNone) {
  Stream stream(0, 0, 0, StreamMode::kQueued, 4);
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  gate.wait_until_entered();
  for (int i = 0; i < 2; ++i) submit(stream, kNothing, {});
  stream.wait_for_room();  // three of four
  EXPECT_EQ(stream.block().full_waits.load(), 0);
  submit(stream, kNothing, {});
  std::thread waiter([&] { stream.wait_for_room(); });
  while (!stream.block().full_waits.load()) std::this_thread::yield();
  gate.open();
  waiter.join();
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
  set_observer(&observer);
  EXPECT_TRUE(second.wait_for(first, 1));
  EXPECT_EQ(second.tail(), 1);
  drain(second);
  set_observer(nullptr);

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

TEST(Failure, IsCountedByItsCode) {
  Stream stream(0, 1, 0, StreamMode::kQueued);
  for (const uint64_t code : {uint64_t(NPU_INDEX_ERROR), uint64_t(9999)}) {
    submit(stream, kFail, {code});
    drain(stream);
    EXPECT_EQ(stream.error()->code, code == 9999 ? int(NPU_ERROR) : int(code));
    stream.clear_error();
    EXPECT_EQ(stream.block().state.load(), uint32_t(StreamState::kRunning));
  }
  EXPECT_EQ(stream.block().errors[NPU_INDEX_ERROR].load(), 1);
  EXPECT_EQ(stream.block().errors[NPU_ERROR].load(), 1);  // of no known code
}

// The other stream belongs to a device that was not stopped, and may never end.
TEST(Failure, ByAStopEndsAWaitForAnotherStream) {
  Stream first(0, 1, 0, StreamMode::kQueued);
  Stream second(0, 2, 0, StreamMode::kQueued);
  Gate gate;
  submit(first, kGate, {word(&gate)});
  gate.wait_until_entered();
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

TEST(Failure, OfAWaitIsCalledAWait) {
  Stream first(0, 1, 0, StreamMode::kQueued);
  Stream second(0, 2, 0, StreamMode::kQueued);
  Gate gate;
  submit(first, kGate, {word(&gate)});
  submit(first, kFail, {NPU_ERROR});
  second.wait_for(first, 2);
  gate.open();
  drain(second);
  EXPECT_EQ(second.error()->op, "wait");
  EXPECT_EQ(second.error()->arguments, "");
}

std::string thread_file(const Stream& stream, const char* name) {
  std::ifstream file("/proc/self/task/" +
                     std::to_string(stream.block().thread.load()) + "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Launcher, HasANameAndNoSignals) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  Stream stream(0, 7, 0, StreamMode::kQueued);
  submit(stream, kNothing, {});
  drain(stream);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_TRUE(!sigismember(&after, SIGINT) && !sigismember(&before, SIGINT));
  EXPECT_EQ(thread_file(stream, "comm"), "npu0/s7\n");
  const std::string status = thread_file(stream, "status");
  const size_t at = status.find("SigBlk:\t");
  const uint64_t blocked = std::stoull(status.substr(at + 8, 16), nullptr, 16);
  EXPECT_TRUE(blocked >> (SIGINT - 1) & 1 && blocked >> (SIGTERM - 1) & 1);
}

TEST(Launcher, EndsOnceAndIsMadeAgain) {
  Stream stream(0, 7, 0, StreamMode::kQueued);
  stream.stop();  // it has none
  submit(stream, kNothing, {});
  stream.stop();
  EXPECT_EQ(stream.block().thread.load(), 0);
  EXPECT_TRUE(!(stream.block().alive.word.load() & RunningTime::kRunning));
  stream.stop();
  submit(stream, kNothing, {});
  drain(stream);
  EXPECT_TRUE(stream.block().thread.load() != 0);
}

TEST(Stream, SaysInItsBlockWhoItIs) {
  Stream stream(0, 7, 0, StreamMode::kQueued, 32);
  const StreamBlock& block = stream.block();
  EXPECT_TRUE(block.device == 0 && block.stream_id == 7);
  EXPECT_EQ(block.capacity, 32);
  EXPECT_EQ(block.state.load(), uint32_t(StreamState::kRunning));
  stream.count_bypass(Bypass::kNested, 3);
  stream.count_bypass(Bypass::kNested);
  EXPECT_EQ(block.bypassed[int(Bypass::kNested)].load(), 4);
}

// The statistics say how long sampled tasks took to launch, to wait and to run.
TEST(Stream, MeasuresTheSampledTasks) {
  Stream stream(0, 7, 0, StreamMode::kQueued);
  uint64_t sampled = 0, deep = 0;
  for (uint64_t i = 0; i < 40 * kSamplePeriod; ++i) {
    submit(stream, kNothing, {});
    sampled += is_sampled(i);
    deep += is_sampled(i, kDepthPeriod);
  }
  EXPECT_TRUE(sampled > 20 && sampled < 80 && deep > 0);
  stream.stop();
  const StreamBlock& block = stream.block();
  for (const auto* histogram :
       {&block.launch_ns, &block.queued_ns, &block.latency_ns})
    EXPECT_EQ(histogram->count.load(), sampled);
  EXPECT_EQ(block.run_ns[int(Work::kKernel)].count.load(), sampled);
  EXPECT_EQ(block.depth.count.load(), deep);
  EXPECT_TRUE(block.last_retired_ns.load() > 0);
}

TEST(Stream, KnowsWhetherEachTaskIsDoneWhenItReturns) {
  Stream queued(0, 7, 0, StreamMode::kQueued);
  Stream direct(0, 8, 0, StreamMode::kInline);
  EXPECT_TRUE(direct.waits_for_each_task() && !queued.waits_for_each_task());
  queued.set_blocking(true);
  EXPECT_TRUE(queued.waits_for_each_task());
  queued.set_blocking(false);
  EXPECT_TRUE(!queued.waits_for_each_task());
}

// Who launches raises an error at once only then, however fast the launcher is.
TEST(Stream, TellsALaunchOnlyWhereItsCallerHasWaitedForIt) {
  static int told;
  set_host_wait_hooks({nullptr, nullptr, nullptr, nullptr, nullptr,
                       [](const Stream&) { ++told; }});
  struct : Observer {
  } observer;
  std::vector<uint64_t> got;
  const auto waited_for = [&got](Stream& stream) {
    Submission s;
    EXPECT_TRUE(stream.begin(2, s));
    s.task->kernel = &kAppend;
    s.words[0] = word(&got);
    s.words[1] = 0;
    stream.commit(s);
    while (!stream.idle()) std::this_thread::yield();  // it is done already
    told = 0;
    stream.after_commit(s);
    return told == 1;
  };
  Stream queued(0, 7, 0, StreamMode::kQueued);
  Stream direct(0, 8, 0, StreamMode::kInline);
  EXPECT_TRUE(!waited_for(queued) && waited_for(direct));

  set_observer(&observer);
  queued.set_observed(true);
  direct.set_observed(true);
  EXPECT_TRUE(!waited_for(queued) && waited_for(direct));

  queued.set_blocking(true);  // some thread's launches block: not this one's
  EXPECT_TRUE(!waited_for(queued));
  set_thread_launch_blocking(true);
  EXPECT_TRUE(waited_for(queued));
  set_thread_launch_blocking(false);
  queued.stop();
  set_observer(nullptr);
  set_host_wait_hooks({});
}

TEST(Stream, BlocksAtNoWaitAndAtNoMark) {
  Stream held(0, 7, 0, StreamMode::kQueued);
  Stream waiting(0, 8, 0, StreamMode::kQueued);
  Gate gate;
  check::submit(held, kGate, {word(&gate)});
  waiting.set_blocking(true);
  set_thread_launch_blocking(true);
  EXPECT_TRUE(waiting.wait_for(held, held.tail()));
  Event event(Timing::kOn);
  EXPECT_TRUE(event.record(waiting));
  EXPECT_TRUE(!event.done());
  set_thread_launch_blocking(false);
  gate.open();
  check::drain(waiting);
  waiting.stop();
  held.stop();
}

TEST(Stream, TellsAnObserverNothingWhenItIsNotObserved) {
  struct Counts final : Observer {
    int submitted_ = 0, published_ = 0, waited = 0;
    bool submitted(Stream&, uint64_t, const Task&) override {
      return ++submitted_;
    }
    void published(Stream&, bool) override { ++published_; }
    void host_waited(Stream&, uint64_t) override { ++waited; }
  } counts;
  Stream queued(0, 7, 0, StreamMode::kQueued);
  Stream direct(0, 8, 0, StreamMode::kInline);
  set_observer(&counts);
  for (Stream* s : {&queued, &direct}) submit(*s, kNothing, {});
  EXPECT_EQ(counts.submitted_ + counts.published_ + counts.waited, 0);
  for (Stream* s : {&queued, &direct}) {
    s->set_observed(true);
    submit(*s, kNothing, {});
    s->set_observed(false);
    submit(*s, kNothing, {});
  }
  EXPECT_TRUE(counts.submitted_ == 2 && counts.published_ == 2);
  EXPECT_EQ(counts.waited, 1);  // the inline one's task is over
  queued.stop();
  set_observer(nullptr);
}

// A program that an observer refuses is dropped, and its place does nothing.
TEST(Stream, DropsAProgramThatIsRefused) {
  struct Refuses final : Observer {
    bool submitted(Stream&, uint64_t, const Task&) override { return false; }
  } refuses;
  struct Counted final : Program {
    int runs = 0, drops = 0;
    int run(Stream&, const DeviceQueue&, const uint64_t*,
            npu_failure&) override {
      return ++runs, NPU_OK;
    }
    void dropped(Stream&, const uint64_t*) override { ++drops; }
  } program;
  static const npu_kernel named{nullptr, "test::program", nullptr, 0};
  Stream stream(0, 7, 0, StreamMode::kQueued);
  const auto give = [&] {
    Submission s;
    EXPECT_TRUE(stream.begin(1, s));
    s.task->marks.kind = TaskKind::kProgram;
    s.task->kernel = &named;
    s.words[0] = reinterpret_cast<uint64_t>(static_cast<Program*>(&program));
    stream.commit(s);
  };
  set_observer(&refuses);
  stream.set_observed(true);
  give();
  drain(stream);
  EXPECT_TRUE(program.runs == 0 && program.drops == 1);
  stream.set_observed(false);
  set_observer(nullptr);
  give();
  drain(stream);
  EXPECT_TRUE(program.runs == 1 && program.drops == 1);
}

// Number 0 is a descriptor as good as any.
TEST(CompletionPort, MayHaveTheFirstDescriptor) {
  const auto ended = check::in_child([] {
    close(0);
    CompletionPort* const port = CompletionPort::make();
    const bool first = port->fd() == 0;
    port->release();
    return first ? 0 : 1;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Event, HoldsItsTimeWhileItOrItsTaskLives) {
  Stream stream(0, 7, 0, StreamMode::kQueued);
  Event event(Timing::kOn);
  EXPECT_TRUE(event.timing() && !Event(Timing::kOff).timing());
  for (int i = 0; i < 3; ++i) {
    const uint64_t before = now_ns();
    event.record(stream);
    event.synchronize();
    EXPECT_TRUE(event.time_ns() >= before && event.time_ns() <= now_ns());
  }
}

}  // namespace
}  // namespace npu
