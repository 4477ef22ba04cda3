// Streams of both kinds: which tasks run when and where, and what their
// statistics, their threads and those who watch them are told.
#include "csrc/driver/driver.h"
#include "csrc/taskqueue/completion_port.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/task_notes.h"
#include "csrc/taskqueue/this_thread.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

constexpr uint64_t kSmall = 16;

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
    EXPECT_EQ(thread_file(block.thread.load(), "comm"), "npu0/s91\n");
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
  const std::string status =
      thread_file(stream.block().thread.load(), "status");
  const size_t at = status.find("SigBlk:\t");
  const uint64_t blocked = std::stoull(status.substr(at + 8, 16), nullptr, 16);
  EXPECT_TRUE(blocked >> (SIGINT - 1) & 1 && blocked >> (SIGTERM - 1) & 1);
}

TEST(Stream, LosesNothingOfSeveralProducersWithAFullRing) {
  constexpr uint64_t kProducers = 4, kEach = 5'000;
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  Numbers got, next(kProducers);
  on_threads(kProducers, [&](uint64_t id) {
    for (uint64_t i = 0; i < kEach; ++i)
      submit(stream, kAppend, {word(&got), id * kEach + i},
             uint32_t(2 + i % 90));  // some are too long for the ring
  });
  drain(stream);
  EXPECT_EQ(got.size(), kProducers * kEach);
  for (uint64_t value : got) EXPECT_EQ(value % kEach, next[value / kEach]++);
}

int run_sum(const npu_kernel*, const uint64_t* words, npu_failure*) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < words[1]; ++i) sum += words[2 + i];
  reinterpret_cast<Numbers*>(words[0])->push_back(sum);
  return NPU_OK;
}
constexpr npu_kernel kSum{run_sum, "test::sum", nullptr, 0};

TEST(Stream, CarriesTasksOfAnyLength) {
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  Numbers got, wanted;

  for (uint64_t n : {0, 1, 33, 34, 62, 63, 1000, 34, 33, 60'000}) {
    Submission s;
    EXPECT_TRUE(begin(stream, s, kSum, {word(&got), n}, uint32_t(n) + 2));
    for (uint64_t i = 0; i < n; ++i) s.words[2 + i] = i;
    EXPECT_EQ(s.task->marks.spilled, n + 2 > Task::kInlineWords);
    stream.commit(s);
    wanted.push_back(n ? n * (n - 1) / 2 : 0);
  }
  drain(stream);

  EXPECT_TRUE(got == wanted);
}

TEST(Stream, WaitsForEachTaskWhileBlocking) {
  Streams s;
  s.one.set_blocking(true);  // asks whether this thread's launches block
  set_thread_launch_blocking(true);
  for (uint64_t i = 0; i < 100; ++i) {
    append(s.one, s.got, i);
    EXPECT_TRUE(s.got.size() == i + 1 && s.one.idle());
  }
  set_thread_launch_blocking(false);
  submit(s.one, kGate, {word(&s.gate)});
  EXPECT_TRUE(!s.one.idle());
  s.gate.open();
}

TEST(Stream, LosesNothingWhenStoppedWhileOthersSubmit) {
  constexpr uint64_t kEach = 2'000;
  Numbers got;
  Stream stream(0, 0, 0, StreamMode::kQueued, kSmall);
  std::thread producer([&] {
    for (uint64_t i = 0; i < kEach; ++i) append(stream, got, i);
  });

  for (int i = 0; i < 50; ++i) stream.stop();
  producer.join();
  append(stream, got, kEach);
  drain(stream);

  EXPECT_EQ(got.size(), kEach + 1);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i);
}

// With no work between them, every task finds the launcher asleep or about to.
TEST(Stream, WakesAParkedLauncherForEveryTask) {
  Streams s;
  for (uint64_t i = 0; i < 300; ++i) {
    const uint64_t parks = s.one.block().parks.load();
    append(s.one, s.got, i);
    drain(s.one);
    if (i % 3 == 0)
      while (s.one.block().parks.load() == parks) std::this_thread::yield();
  }
  EXPECT_EQ(s.got.size(), 300);
}

TEST(InlineStream, RunsTheTaskOnTheCaller) {
  Stream stream(0, 64, 0, StreamMode::kInline);
  Numbers got;
  for (uint64_t i = 0; i < 10; ++i) {
    submit(stream, kAppend, {word(&got), i}, uint32_t(2 + 10 * i));
    EXPECT_TRUE(got.size() == i + 1 && stream.idle());
  }
  EXPECT_EQ(stream.tail(), 10);
  EXPECT_EQ(stream.block().bypassed[int(Bypass::kSyncLaunchStream)].load(), 10);
  EXPECT_EQ(stream.block().parks.load(), 0);
}

TEST(InlineStream, WaitsForTheQueuedStreamItDependsOn) {
  Streams s;
  Stream direct(0, 64, 0, StreamMode::kInline);
  submit(s.one, kGate, {word(&s.gate)});
  append(s.one, s.got, 1);
  std::jthread opener([&] {
    s.gate.wait_until_entered();
    s.gate.open();
  });
  EXPECT_TRUE(direct.wait_for(s.one, s.one.tail()));
  EXPECT_EQ(s.got.size(), 1);
  append(direct, s.got, 2);
  EXPECT_EQ(s.got.size(), 2);
}

TEST(InlineStream, TakesTurnsAmongThreads) {
  constexpr uint64_t kThreads = 3, kEach = 1'000;
  Stream stream(0, 64, 0, StreamMode::kInline);
  Numbers got;
  on_threads(kThreads, [&](uint64_t id) {
    for (uint64_t i = 0; i < kEach; ++i) append(stream, got, id);
  });
  EXPECT_EQ(got.size(), kThreads * kEach);
  EXPECT_EQ(stream.retired().value(), kThreads * kEach);
}

TEST(InlineStream, GivesTheGilUpWhileItWaitsForItsTurn) {
  hooks = {Gil::release, Gil::reacquire};
  Stream stream(0, 64, 0, StreamMode::kInline);
  Numbers got;
  std::atomic<bool> second_has_gil{false};
  // Python code that lets another thread have the GIL, as I/O does.
  const std::function<void()> python = [&] {
    void* const held = Gil::release();
    second_has_gil.wait(false);
    Gil::reacquire(held);
  };
  std::thread second;
  {
    const Gil gil;
    second = std::thread([&] {
      const Gil its;
      second_has_gil = true;
      second_has_gil.notify_all();
      append(stream, got, 1);
    });
    submit(stream, kCallOnHost, {word(&python)});
  }
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
  auto* got = reinterpret_cast<Numbers*>(words[1]);
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
  Numbers got;
  // Round by round the arena gives out what the last one gave back.
  for (uint64_t round = 0; round < 3; ++round) {
    got.clear();
    const uint64_t tail = stream.tail();
    Submission s;
    EXPECT_TRUE(begin(stream, s, kNested, {word(&stream), word(&got)}, 50));
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
  Numbers got;
  append(direct, got, 1);
  EXPECT_EQ(ended_on_.size(), 1);
  submit(direct, kNested, {word(&direct), word(&got)}, 50);
  EXPECT_EQ(ended_on_.size(), 2);
  append(queued, got, 1);
  queued.stop();
  hooks.after_direct_task = nullptr;
  append(direct, got, 1);
  EXPECT_EQ(ended_on_.size(), 2);
  for (const std::thread::id thread : ended_on_)
    EXPECT_TRUE(thread == std::this_thread::get_id());
}

TEST(InlineStream, GivesTheErrorOfANestedTaskItsNumber) {
  Stream stream(0, 64, 0, StreamMode::kInline);
  const std::function<void()> launch = [&] { fail(stream); };
  EXPECT_TRUE(works(stream));
  submit(stream, kCallOnHost, {word(&launch)});
  EXPECT_TRUE(stream.failed());
  EXPECT_EQ(stream.error()->op, std::string("test::fail"));
  EXPECT_EQ(stream.error()->task, 1);
  EXPECT_EQ(stream.tail(), 3);
}

using Opened = Stream::Opened;

TEST(TryBegin, OpensATaskOrSaysWhyNot) {
  Stream stream(0, 0, 0, StreamMode::kQueued, 4);
  Numbers got;
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
  EXPECT_EQ(got, Numbers({2, 2}));
  fail(stream);
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

// Who launches raises an error at once only then, however fast the launcher is.
TEST(Stream, TellsALaunchOnlyWhereItsCallerHasWaitedForIt) {
  static int told;
  hooks = {.launched = [](const Stream&) { ++told; }};
  Observer observer;
  Stream queued(0, 7, 0, StreamMode::kQueued);
  Stream direct(0, 8, 0, StreamMode::kInline);
  const auto waited_for = [](Stream& stream) {
    Submission s;
    EXPECT_TRUE(begin(stream, s, kNothing, {}));
    stream.commit(s);
    while (!stream.idle()) std::this_thread::yield();  // it is done already
    told = 0;
    stream.after_commit(s);
    return told == 1;
  };
  EXPECT_TRUE(direct.waits_for_each_task() && !queued.waits_for_each_task());
  EXPECT_TRUE(!waited_for(queued) && waited_for(direct));
  const Listed listed(observer, {&queued, &direct});
  EXPECT_TRUE(!waited_for(queued) && waited_for(direct));
  queued.set_blocking(true);  // some thread's launches block: not this one's
  EXPECT_TRUE(queued.waits_for_each_task() && !waited_for(queued));
  set_thread_launch_blocking(true);
  EXPECT_TRUE(waited_for(queued));
  set_thread_launch_blocking(false);
  queued.set_blocking(false);
  EXPECT_TRUE(!queued.waits_for_each_task());
  hooks = {};
}

TEST(Stream, BlocksAtNoWaitAndAtNoMark) {
  Streams s;
  submit(s.one, kGate, {word(&s.gate)});
  s.two.set_blocking(true);
  set_thread_launch_blocking(true);
  EXPECT_TRUE(s.two.wait_for(s.one, s.one.tail()));
  Event event(Timing::kOn);
  EXPECT_TRUE(event.record(s.two));
  EXPECT_TRUE(!event.done());
  set_thread_launch_blocking(false);
  drain(s.two, s.gate);
}

TEST(Stream, TellsAnObserverNothingWhenItIsNotObserved) {
  struct Counts final : Observer {
    int submitted_ = 0, published_ = 0, waited = 0;
    bool submitted(Stream&, uint64_t, const Task&) override {
      return !++submitted_;
    }
    void published(Stream&, bool) override { ++published_; }
    bool host_waited(Stream&, uint64_t) override {
      ++waited;
      return false;
    }
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
    EXPECT_TRUE(begin(stream, s, named, {word<Program>(&program)}));
    s.task->marks.kind = TaskKind::kProgram;
    stream.commit(s);
    drain(stream);
  };
  {
    const Listed listed(refuses, {&stream});
    give();
    EXPECT_TRUE(program.runs == 0 && program.drops == 1);
  }
  give();
  EXPECT_TRUE(program.runs == 1 && program.drops == 1);
}

std::string name(const Stream& stream, uint64_t task) {
  const uint64_t key = stream.block().recent[task % kRecentTasks].name.load();
  return key ? reinterpret_cast<const char*>(key) : "";
}
uint64_t site(const Stream& stream, uint64_t task) {
  const uint64_t number = uint64_t{1} << RecentTask::kTaskShift;
  return stream.block().recent[task % kRecentTasks].site.load() % number;
}

TEST(Recent, NamesEachTaskAndWhereItWasLaunched) {
  Stream direct(0, 64, 0, StreamMode::kInline);
  Stream stream(0, 0, 0, StreamMode::kQueued);
  for (uint32_t i = 0; i < 3; ++i) submit(stream, kNothing, {}, 0, {10 + i, 0});
  submit(direct, kNothing, {}, 0, {20, 0});
  drain(stream);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(name(stream, i), "test::nothing");
    EXPECT_EQ(site(stream, i), 10 + i);
  }
  EXPECT_EQ(site(direct, 0), 20);
}

// A task that has not begun has not the name of an older one.
TEST(Recent, KeepsTheLastOnesOnly) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  const StreamBlock& block = stream.block();
  const uint32_t n = uint32_t(kRecentTasks) + 5;
  for (uint32_t i = 0; i < n; ++i)
    submit(stream, kNothing, {}, 0, {100 + i, 0});
  drain(stream);
  for (uint64_t i = n - kRecentTasks; i < n; ++i) {
    EXPECT_EQ(site(stream, i), 100 + i);
    EXPECT_EQ(std::string(block.running(i)), "test::nothing");
  }
  EXPECT_TRUE(!block.running(n) && !block.running(4));
}

TEST(Recent, ShowsTheTaskThatRunsAndWhatBecameOfTheOthers) {
  Streams s;
  Gate before;
  submit(s.two, kGate, {word(&before)});
  submit(s.one, kGate, {word(&s.gate)});
  for (int i = 0; i < 2; ++i) submit(s.one, kFail, {NPU_ERROR});
  EXPECT_TRUE(s.two.wait_for(s.one, s.one.tail()));
  s.gate.wait_until_entered();
  EXPECT_EQ(name(s.one, 0), "test::gate");
  before.open();
  drain(s.one, s.gate);
  drain(s.two);
  EXPECT_EQ(site(s.one, 1), RecentTask::kFailed);
  EXPECT_EQ(site(s.one, 2), RecentTask::kDropped);
  EXPECT_EQ(name(s.two, 1), "wait");
}

// Another core's counter is behind: the launcher begins before the launch, ends
// before it began, and begins the next task before that.
TEST(TaskNotes, OrderTheTimesOfTwoThreads) {
  using Times = std::vector<std::pair<uint64_t, uint64_t>>;
  struct Runs final : Observer {
    Times all;
    unsigned wants() const override { return kTimes; }
    void ran(Stream&, const TaskRun& run) override {
      all.push_back({run.started, run.ended});
    }
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
  EXPECT_EQ(runs.all, Times({{1'000, 1'000}, {1'100, 1'100}, {1'100, 1'100}}));
}

}  // namespace
}  // namespace npu
