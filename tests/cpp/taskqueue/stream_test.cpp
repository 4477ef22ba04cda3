// Streams of both kinds: which tasks run when and where, and what their
// statistics, their threads and those who watch them are told.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/hooks.h"
#include "csrc/driver/driver.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/switches.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/completion_port.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/task_notes.h"
#include "csrc/taskqueue/this_thread.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

constexpr uint64_t kSmall = 16;

std::string thread_file(const Stream& stream, const char* name) {
  std::ifstream file("/proc/self/task/" +
                     std::to_string(stream.block().thread.load()) + "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Launcher, BeginsWithATaskAndEndsWithAStop) {
  Stream stream(0, 91, 0, StreamMode::kQueued);
  const StreamBlock& block = stream.block();
  EXPECT_TRUE(!stream.stop());  // it has none
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(stream.idle());
    EXPECT_EQ(block.thread.load(), 0);
    Gate gate;
    hold(stream, gate);
    EXPECT_TRUE(!stream.idle());
    EXPECT_EQ(stream.tail(), uint64_t(round) + 1);
    EXPECT_TRUE(block.thread.load() != uint64_t(gettid()));
    EXPECT_EQ(thread_file(stream, "comm"), "npu0/s91\n");
    gate.open();
    EXPECT_TRUE(stream.stop() && !stream.stop());
    EXPECT_TRUE(!(block.alive.word.load() & RunningTime::kRunning));
  }
}

TEST(Launcher, TakesNoSignals) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  Stream stream(0, 7, 0, StreamMode::kQueued);
  submit(stream, kNothing, {});
  drain(stream);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_TRUE(!sigismember(&after, SIGINT) && !sigismember(&before, SIGINT));
  const std::string status = thread_file(stream, "status");
  const size_t at = status.find("SigBlk:\t");
  const uint64_t blocked = std::stoull(status.substr(at + 8, 16), nullptr, 16);
  EXPECT_TRUE(blocked >> (SIGINT - 1) & 1 && blocked >> (SIGTERM - 1) & 1);
}

TEST(Stream, HoldsTheCallerBackWhenItsRingIsFull) {
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  std::vector<uint64_t> got;
  Gate gate;
  hold(stream, gate);
  for (uint64_t i = 1; i < kSmall; ++i)
    submit(stream, kAppend, {word(&got), i});
  EXPECT_EQ(stream.block().full_waits.load(), 0);

  std::thread producer([&] {
    for (uint64_t i = kSmall; i < 200; ++i)
      submit(stream, kAppend, {word(&got), i});
  });
  // The producer counts before it waits.
  while (stream.block().full_waits.load() == 0) std::this_thread::yield();
  EXPECT_EQ(stream.tail(), kSmall);
  gate.open();
  producer.join();
  drain(stream);

  EXPECT_EQ(got.size(), 199);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i + 1);
}

TEST(Stream, LosesNothingOfSeveralProducersWithAFullRing) {
  constexpr uint64_t kProducers = 4, kEach = 5'000;
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  std::vector<uint64_t> got;
  std::vector<std::thread> producers;

  for (uint64_t id = 0; id < kProducers; ++id)
    producers.emplace_back([&, id] {
      for (uint64_t i = 0; i < kEach; ++i)
        submit(stream, kAppend, {word(&got), id * kEach + i},
               uint32_t(2 + i % 90));  // some are too long for the ring
    });
  for (auto& thread : producers) thread.join();
  drain(stream);

  EXPECT_EQ(got.size(), kProducers * kEach);
  std::vector<uint64_t> next(kProducers, 0);
  for (uint64_t value : got) EXPECT_EQ(value % kEach, next[value / kEach]++);
}

int run_sum(const npu_kernel*, const uint64_t* words, npu_failure*) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < words[1]; ++i) sum += words[2 + i];
  reinterpret_cast<std::vector<uint64_t>*>(words[0])->push_back(sum);
  return NPU_OK;
}
constexpr npu_kernel kSum{run_sum, "test::sum", nullptr, 0};

TEST(Stream, CarriesTasksOfAnyLength) {
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  std::vector<uint64_t> got, wanted;

  for (uint64_t n : {0, 1, 33, 34, 62, 63, 1000, 34, 33, 60'000}) {
    Submission s;
    EXPECT_TRUE(stream.begin(uint32_t(n) + 2, s));
    s.task->kernel = &kSum;
    s.words[0] = word(&got);
    s.words[1] = n;
    for (uint64_t i = 0; i < n; ++i) s.words[2 + i] = i;
    EXPECT_EQ(s.task->marks.spilled, n + 2 > Task::kInlineWords);
    stream.commit(s);
    wanted.push_back(n ? n * (n - 1) / 2 : 0);
  }
  drain(stream);

  EXPECT_TRUE(got == wanted);
}

TEST(Stream, WaitsForEachTaskWhileBlocking) {
  std::vector<uint64_t> got;
  Gate gate;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  stream.set_blocking(true);  // asks whether this thread's launches block
  set_thread_launch_blocking(true);
  for (uint64_t i = 0; i < 100; ++i) {
    submit(stream, kAppend, {word(&got), i});
    EXPECT_EQ(got.size(), i + 1);
    EXPECT_TRUE(stream.idle());
  }

  set_thread_launch_blocking(false);
  submit(stream, kGate, {word(&gate)});
  EXPECT_TRUE(!stream.idle());
  gate.open();
}

TEST(Stream, FinishesWhatIsQueuedWhenStoppedAndWorksAgain) {
  std::vector<uint64_t> got;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  for (uint64_t i = 0; i < 100; ++i) {
    for (int n = 0; n < 10; ++n) submit(stream, kAppend, {word(&got), i});
    stream.stop();
    EXPECT_EQ(got.size(), 10 * (i + 1));
    EXPECT_TRUE(stream.idle());
  }
}

TEST(Stream, LosesNothingWhenStoppedWhileOthersSubmit) {
  constexpr uint64_t kEach = 2'000;
  std::vector<uint64_t> got;
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  std::thread producer([&] {
    for (uint64_t i = 0; i < kEach; ++i)
      submit(stream, kAppend, {word(&got), i});
  });

  for (int i = 0; i < 50; ++i) stream.stop();
  producer.join();
  submit(stream, kAppend, {word(&got), kEach});
  drain(stream);

  EXPECT_EQ(got.size(), kEach + 1);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i);
}

// With no work between them, every task finds the launcher asleep or about to.
TEST(Stream, WakesAParkedLauncherForEveryTask) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  for (uint64_t i = 0; i < 300; ++i) {
    const uint64_t parks = stream.block().parks.load();
    submit(stream, kAppend, {word(&got), i});
    drain(stream);
    if (i % 3 == 0)
      while (stream.block().parks.load() == parks) std::this_thread::yield();
  }
  EXPECT_EQ(got.size(), 300);
}

TEST(InlineStream, RunsTheTaskOnTheCaller) {
  Stream stream(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;

  for (uint64_t i = 0; i < 10; ++i) {
    submit(stream, kAppend, {word(&got), i}, uint32_t(2 + 10 * i));
    EXPECT_EQ(got.size(), i + 1);
    EXPECT_TRUE(stream.idle());
  }

  EXPECT_EQ(stream.tail(), 10);
  EXPECT_EQ(stream.block().bypassed[int(Bypass::kSyncLaunchStream)].load(), 10);
  EXPECT_EQ(stream.block().parks.load(), 0);
}

TEST(InlineStream, WaitsForTheQueuedStreamItDependsOn) {
  Stream queued(0, 0, 0, StreamMode::kQueued);
  Stream direct(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;
  Gate gate;
  submit(queued, kGate, {word(&gate)});
  submit(queued, kAppend, {word(&got), 1});
  std::thread opener([&] {
    gate.wait_until_entered();
    gate.open();
  });

  EXPECT_TRUE(direct.wait_for(queued, queued.tail()));
  EXPECT_EQ(got.size(), 1);
  submit(direct, kAppend, {word(&got), 2});

  EXPECT_EQ(got.size(), 2);
  opener.join();
}

TEST(InlineStream, TakesTurnsAmongThreads) {
  constexpr uint64_t kThreads = 3, kEach = 1'000;
  Stream stream(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;
  std::vector<std::thread> threads;

  for (uint64_t id = 0; id < kThreads; ++id)
    threads.emplace_back([&, id] {
      for (uint64_t i = 0; i < kEach; ++i)
        submit(stream, kAppend, {word(&got), id});
    });
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(got.size(), kThreads * kEach);
  EXPECT_EQ(stream.retired().value(), kThreads * kEach);
}

// Stands in for the GIL.
std::mutex gil_;
std::atomic<bool> has_gil_{false};

void* release_gil() {
  gil_.unlock();
  return &gil_;
}
void take_gil(void*) { gil_.lock(); }

// Python code that lets another thread have the GIL, as I/O does.
int run_python(const npu_kernel*, const uint64_t*, npu_failure*) {
  gil_.unlock();
  has_gil_.wait(false);
  gil_.lock();
  return NPU_OK;
}
constexpr npu_kernel kPython{run_python, "test::python", nullptr, 0,
                             NPU_KERNEL_ON_HOST};

TEST(InlineStream, GivesTheGilUpWhileItWaitsForItsTurn) {
  hooks = {release_gil, take_gil};
  Stream stream(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;
  gil_.lock();
  std::thread second([&] {
    std::lock_guard gil(gil_);
    has_gil_ = true;
    has_gil_.notify_all();
    submit(stream, kAppend, {word(&got), 1});
  });
  submit(stream, kPython, {});
  gil_.unlock();
  second.join();
  hooks = {};
  EXPECT_EQ(got.size(), 1);
  EXPECT_EQ(stream.retired().value(), 2);
}

// words: Stream*, vector<uint64_t>*, then n others. Launches two tasks on the
// stream that it runs on, one of them with its words in the arena, then writes
// down its words.
int run_nested(const npu_kernel*, const uint64_t* words, npu_failure*) {
  Stream& stream = *reinterpret_cast<Stream*>(words[0]);
  auto* got = reinterpret_cast<std::vector<uint64_t>*>(words[1]);
  const uint64_t before = stream.tail();
  submit(stream, kAppend, {word(got), 100 + before});
  submit(stream, kAppend, {word(got), 200 + before}, 60);
  // The task was done where it was launched, with a number of its own.
  EXPECT_EQ(got->back(), 200 + before);
  EXPECT_EQ(stream.tail(), before + 2);
  EXPECT_TRUE(stream.idle());
  for (uint64_t i = 2; i < 50; ++i) got->push_back(words[i]);
  return NPU_OK;
}
constexpr npu_kernel kNested{run_nested, "test::nested", nullptr, 0,
                             NPU_KERNEL_ON_HOST};

TEST(InlineStream, KeepsATaskThatLaunchesOthersOnIt) {
  Stream stream(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got;
  // Round by round the arena gives out what the last one gave back.
  for (uint64_t round = 0; round < 3; ++round) {
    got.clear();
    const uint64_t tail = stream.tail();
    Submission s;
    EXPECT_TRUE(stream.begin(50, s));
    s.task->kernel = &kNested;
    s.words[0] = word(&stream);
    s.words[1] = word(&got);
    for (uint64_t i = 2; i < 50; ++i) s.words[i] = 1000 * round + i;
    stream.commit(s);

    EXPECT_EQ(s.position, tail + 2);
    EXPECT_EQ(stream.tail(), tail + 3);
    EXPECT_TRUE(stream.idle());
    EXPECT_EQ(got.size(), 50);
    for (uint64_t i = 2; i < 50; ++i) EXPECT_EQ(got[i], 1000 * round + i);
  }
  EXPECT_EQ(stream.block().bypassed[int(Bypass::kSyncLaunchStream)].load(), 9);
}

std::vector<std::thread::id> ended_on_;

// It is told once for each task that the caller launches, however many tasks
// that one launches.
TEST(InlineStream, TellsWhenATaskHasRunOnItsCaller) {
  ended_on_.clear();
  hooks.after_direct_task = [] {
    ended_on_.push_back(std::this_thread::get_id());
  };
  Stream direct(0, 64, 0, StreamMode::kInline);
  Stream queued(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  submit(direct, kAppend, {word(&got), 1});
  EXPECT_EQ(ended_on_.size(), 1);
  submit(direct, kNested, {word(&direct), word(&got)}, 50);
  EXPECT_EQ(ended_on_.size(), 2);
  submit(queued, kAppend, {word(&got), 1});
  queued.stop();
  hooks.after_direct_task = nullptr;
  submit(direct, kAppend, {word(&got), 1});
  EXPECT_EQ(ended_on_.size(), 2);
  for (const std::thread::id thread : ended_on_)
    EXPECT_TRUE(thread == std::this_thread::get_id());
}

TEST(InlineStream, GivesTheErrorOfANestedTaskItsNumber) {
  Stream stream(0, 64, 0, StreamMode::kInline);
  static constexpr npu_kernel kLaunchesAFailure{
      [](const npu_kernel*, const uint64_t* words, npu_failure*) {
        submit(*reinterpret_cast<Stream*>(words[0]), kFail,
               {uint64_t(NPU_ERROR)});
        return int(NPU_OK);
      },
      "test::launches_a_failure", nullptr, 0, NPU_KERNEL_ON_HOST};
  std::vector<uint64_t> got;
  submit(stream, kAppend, {word(&got), 1});
  submit(stream, kLaunchesAFailure, {word(&stream)});

  EXPECT_TRUE(stream.failed());
  EXPECT_EQ(stream.error()->op, std::string("test::fail"));
  EXPECT_EQ(stream.error()->task, 1);
  EXPECT_EQ(stream.tail(), 3);
}

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
  hold(stream, gate);
  for (int i = 0; i < 2; ++i) submit(stream, kNothing, {});
  stream.wait_for_room();  // three of four
  EXPECT_EQ(stream.block().full_waits.load(), 0);
  submit(stream, kNothing, {});
  std::thread waiter([&] { stream.wait_for_room(); });
  while (!stream.block().full_waits.load()) std::this_thread::yield();
  gate.open();
  waiter.join();
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
  hooks = {.launched = [](const Stream&) { ++told; }};
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

  list_observer(observer, true);
  queued.look_for_observers();
  direct.look_for_observers();
  EXPECT_TRUE(!waited_for(queued) && waited_for(direct));

  queued.set_blocking(true);  // some thread's launches block: not this one's
  EXPECT_TRUE(!waited_for(queued));
  set_thread_launch_blocking(true);
  EXPECT_TRUE(waited_for(queued));
  set_thread_launch_blocking(false);
  queued.stop();
  list_observer(observer, false);
  hooks = {};
}

TEST(Stream, BlocksAtNoWaitAndAtNoMark) {
  Stream held(0, 7, 0, StreamMode::kQueued);
  Stream waiting(0, 8, 0, StreamMode::kQueued);
  Gate gate;
  submit(held, kGate, {word(&gate)});
  waiting.set_blocking(true);
  set_thread_launch_blocking(true);
  EXPECT_TRUE(waiting.wait_for(held, held.tail()));
  Event event(Timing::kOn);
  EXPECT_TRUE(event.record(waiting));
  EXPECT_TRUE(!event.done());
  set_thread_launch_blocking(false);
  gate.open();
  drain(waiting);
  waiting.stop();
  held.stop();
}

TEST(Stream, TellsAnObserverNothingWhenItIsNotObserved) {
  struct Counts final : Observer {
    int submitted_ = 0, published_ = 0, waited = 0;
    bool submitted(Stream&, uint64_t, const Task&) override {
      return !++submitted_;
    }
    void published(Stream&, bool) override { ++published_; }
    void host_waited(Stream&, uint64_t) override { ++waited; }
  } counts;
  Stream queued(0, 7, 0, StreamMode::kQueued);
  Stream direct(0, 8, 0, StreamMode::kInline);
  list_observer(counts, true);
  for (Stream* s : {&queued, &direct}) submit(*s, kNothing, {});
  EXPECT_EQ(counts.submitted_ + counts.published_ + counts.waited, 0);
  for (const bool listed : {true, false}) {
    list_observer(counts, listed);
    for (Stream* s : {&queued, &direct}) {
      s->look_for_observers();
      submit(*s, kNothing, {});
    }
  }
  EXPECT_TRUE(counts.submitted_ == 2 && counts.published_ == 2);
  EXPECT_EQ(counts.waited, 1);  // the inline one's task is over
  queued.stop();
}

// A program that an observer refuses is dropped, and its place does nothing.
TEST(Stream, DropsAProgramThatIsRefused) {
  struct Refuses final : Observer {
    bool submitted(Stream&, uint64_t, const Task&) override { return true; }
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
  list_observer(refuses, true);
  stream.look_for_observers();
  give();
  drain(stream);
  EXPECT_TRUE(program.runs == 0 && program.drops == 1);
  list_observer(refuses, false);
  stream.look_for_observers();
  give();
  drain(stream);
  EXPECT_TRUE(program.runs == 1 && program.drops == 1);
}

std::string name(const Stream& stream, uint64_t task) {
  const uint64_t key = stream.block().recent[task % kRecentTasks].name.load();
  return key ? reinterpret_cast<const char*>(key) : "";
}
uint64_t site(const Stream& stream, uint64_t task) {
  return stream.block().recent[task % kRecentTasks].site.load();
}

bool submit_at(Stream& stream, uint32_t site, std::vector<uint64_t>* got) {
  Submission s;
  if (!stream.begin(2, s, {site, 0})) return false;
  s.task->kernel = &kAppend;
  s.words[0] = word(got);
  s.words[1] = site;
  stream.commit(s);
  return true;
}

TEST(Recent, NamesEachTaskAndWhereItWasLaunched) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Stream direct(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got, got_directly;
  for (uint32_t i = 0; i < 3; ++i) submit_at(stream, 10 + i, &got);
  submit_at(direct, 20, &got_directly);
  drain(stream);

  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(name(stream, i), "test::append");
    EXPECT_EQ(site(stream, i), 10 + i);
  }
  EXPECT_EQ(site(direct, 0), 20);
}

TEST(Recent, KeepsTheLastOnesOnly) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  const uint32_t n = uint32_t(kRecentTasks) + 5;
  for (uint32_t i = 0; i < n; ++i) submit_at(stream, 100 + i, &got);
  drain(stream);

  for (uint64_t i = n - kRecentTasks; i < n; ++i)
    EXPECT_EQ(site(stream, i), 100 + i);
}

TEST(Recent, ShowsTheTaskThatRunsAndWhatBecameOfTheOthers) {
  Stream first(0, 1, 0, StreamMode::kQueued);
  Stream second(0, 2, 0, StreamMode::kQueued);
  Gate gate, before;
  submit(second, kGate, {word(&before)});
  submit(first, kGate, {word(&gate)});
  submit(first, kFail, {NPU_ERROR});
  submit(first, kFail, {NPU_ERROR});
  EXPECT_TRUE(second.wait_for(first, first.tail()));
  gate.wait_until_entered();

  EXPECT_EQ(name(first, 0), "test::gate");

  before.open();
  gate.open();
  drain(first);
  drain(second);
  EXPECT_EQ(site(first, 1), RecentTask::kFailed);
  EXPECT_EQ(site(first, 2), RecentTask::kDropped);
  EXPECT_EQ(name(second, 1), "wait");
}

// Another core's counter is behind: the launcher begins before the launch, ends
// before it began, and begins the next task before that.
TEST(TaskNotes, OrderTheTimesOfTwoThreads) {
  struct Runs final : Observer {
    std::vector<TaskRun> all;
    unsigned wants() const override { return kTimes; }
    void ran(Stream&, const TaskRun& run) override { all.push_back(run); }
  } runs;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  TaskNotes notes(stream);
  Task task{};
  task.kernel = &kNothing;
  const auto note = [&](uint64_t position, uint64_t stamp, uint64_t begun,
                        uint64_t ended) {
    task.stamp = stamp;
    TaskNotes::Running running = notes.begins(task, position, begun);
    notes.ends(task, running, ended);
  };
  list_observer(runs, true);
  note(0, 1'000, 990, 995);
  note(1, 1'001, 1'100, 1'090);
  note(2, 1'002, 1'050, 1'060);
  list_observer(runs, false);

  const uint64_t times[][2] = {{1'000, 1'000}, {1'100, 1'100}, {1'100, 1'100}};
  EXPECT_EQ(runs.all.size(), 3);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(runs.all.at(i).started, times[i][0]);
    EXPECT_EQ(runs.all.at(i).ended, times[i][1]);
  }
}

}  // namespace
}  // namespace npu
