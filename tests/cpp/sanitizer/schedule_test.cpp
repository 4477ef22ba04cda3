// Which interleavings a schedule makes, and what it does between them.
#include "csrc/sanitizer/schedule.h"
#include "csrc/interop/flag.h"
#include "csrc/taskqueue/this_thread.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

ScheduleOptions seeded(uint64_t seed, int changes = 0, uint64_t length = 0) {
  return {seed, changes, length, false};
}

// Two queued streams and an inline one, whose tasks a schedule runs.
struct Scheduled {
  explicit Scheduled(const ScheduleOptions& options) : schedule(options) {
    list_observer(schedule, true);
    for (Stream* s : {&one, &two, &direct}) s->look_for_observers();
  }
  ~Scheduled() {
    schedule.drain();
    list_observer(schedule, false);
  }
  void append(Stream& stream, uint64_t value) {
    check::append(stream, got, value);
  }

  Numbers got;
  Stream one{0, 90, 0, StreamMode::kQueued}, two{0, 91, 0, StreamMode::kQueued};
  Stream direct{0, 92, 0, StreamMode::kInline};
  Schedule schedule;
};

// A seed by which neither stream runs before the host waits.
uint64_t lagging_seed() {
  for (uint64_t seed = 1; seed < 100; ++seed) {
    Scheduled w(seeded(seed));
    w.append(w.one, 1);
    w.append(w.two, 2);
    if (w.got.empty()) return seed;
  }
  EXPECT_TRUE(!"a third of all seeds");
  return 1;
}

// The order in which four tasks on each of two streams run by that seed.
Numbers order_of(const ScheduleOptions& options, uint64_t* trace = nullptr) {
  Scheduled w(options);
  for (uint64_t i = 0; i < 4; ++i) {
    w.append(w.one, 10 + i);
    w.append(w.two, 20 + i);
  }
  drain(w.one);
  drain(w.two);
  if (trace) *trace = w.schedule.trace();
  EXPECT_EQ(w.schedule.steps(), 16);
  return w.got;
}

Numbers of_stream(const Numbers& order, uint64_t tens) {
  Numbers found;
  for (const uint64_t value : order)
    if (value / 10 == tens) found.push_back(value);
  return found;
}

uint64_t direct_tasks_ = 0;

// On the thread of the host: the layer above takes back there what a kernel has
// set for the thread.
TEST(Schedule, OfSeedZeroRunsEachTaskWhereItIsSubmitted) {
  hooks.after_direct_task = [] { ++direct_tasks_; };
  {
    Scheduled w({0, 8, 4, false});
    Numbers expected;
    for (uint64_t i = 0; i < 40; ++i) {
      w.append(i % 2 ? w.one : w.two, i);
      expected.push_back(i);
      EXPECT_TRUE(w.got == expected);
      EXPECT_EQ(direct_tasks_, i + 1);
    }
  }
  hooks.after_direct_task = nullptr;
}

TEST(Schedule, RepeatsWhatItsSeedDoes) {
  std::set<Numbers> orders;
  std::set<uint64_t> traces;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    uint64_t trace = 0, again = 0;
    const Numbers order = order_of(seeded(seed, 3, 16), &trace);
    EXPECT_TRUE(order == order_of(seeded(seed, 3, 16), &again));
    EXPECT_EQ(trace, again);
    EXPECT_EQ(of_stream(order, 1), Numbers({10, 11, 12, 13}));
    EXPECT_EQ(of_stream(order, 2), Numbers({20, 21, 22, 23}));
    orders.insert(order);
    traces.insert(trace);
  }
  EXPECT_TRUE(orders.size() >= 15);
  EXPECT_TRUE(traces.size() >= orders.size());
}

// Three priorities give six orders of host and streams. Where neither is above
// the host, the higher one runs all that it has when the host waits.
TEST(Schedule, WithoutChangesKeepsItsPriorities) {
  std::set<Numbers> orders;
  bool one_first = false, two_first = false;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Numbers order = order_of(seeded(seed));
    EXPECT_TRUE(order == order_of(seeded(seed, 0, 16)));
    orders.insert(order);
    one_first |= order == Numbers({10, 11, 12, 13, 20, 21, 22, 23});
    two_first |= order == Numbers({20, 21, 22, 23, 10, 11, 12, 13});
  }
  EXPECT_TRUE(one_first && two_first);
  EXPECT_TRUE(orders.size() <= 6);
}

// A change at a step of the host lowers the host, and one at a step of a stream
// lowers that stream: the other side then goes first.
TEST(Schedule, ChangesThePriorityOfWhoeverMadeTheStep) {
  const uint64_t seed = lagging_seed();
  int earlier = 0;
  for (int changes = 1; changes <= 3; ++changes) {
    Scheduled w({seed, changes, 1, false});  // all of them at the first step
    w.append(w.one, 1);
    earlier += w.got == Numbers({1});
    EXPECT_EQ(w.schedule.steps(), 1 + w.got.size());
  }
  EXPECT_EQ(earlier, 3);
}

TEST(Schedule, RunsWhatTheHostWaitsForAndNothingBehindIt) {
  Scheduled w(seeded(lagging_seed()));
  for (uint64_t i = 0; i < 3; ++i) w.append(w.one, i);
  host_wait(w.one, 2, WaitReason::kStreamSync);
  EXPECT_EQ(w.got, Numbers({0, 1}));
  drain(w.one);
  EXPECT_EQ(w.got, Numbers({0, 1, 2}));
}

TEST(Schedule, RunsATaskAtEachPoll) {
  Scheduled w(seeded(lagging_seed()));
  for (uint64_t i = 0; i < 3; ++i) w.append(w.one, i);
  Event event(Timing::kOff);
  event.record(w.one);
  for (uint64_t polls = 1; polls <= 3; ++polls) {
    EXPECT_EQ(event.done(), polls == 3);
    EXPECT_EQ(w.got.size(), polls);
  }
}

// A queued stream's wait runs nothing: its work may lag.
TEST(Schedule, RunsWhatADirectStreamWaitsFor) {
  Scheduled w(seeded(lagging_seed()));
  w.append(w.one, 1);
  w.two.wait_for(w.one, w.one.tail());
  EXPECT_TRUE(w.got.empty());
  w.direct.wait_for(w.one, w.one.tail());
  EXPECT_EQ(w.got, Numbers({1}));
  w.append(w.direct, 2);
  EXPECT_EQ(w.got, Numbers({1, 2}));
}

void take(Stream& stream, Flag& flag) {
  submit(stream, kTakeFlag, {word(&flag), 0});
}
void set(Stream& stream, Flag& flag) {
  submit(stream, kSetFlag, {word(&flag), 1});
}

// The wait is found through a stream that waits for the one which waits for the
// flag.
TEST(Schedule, FailsAWaitForAFlagThatNobodyRaises) {
  Flag flag{0};
  Scheduled w(seeded(7));
  take(w.one, flag);
  w.two.wait_for(w.one, w.one.tail());
  w.append(w.two, 1);
  EXPECT_TRUE(!w.one.failed());
  drain(w.two);
  EXPECT_TRUE(w.one.failed() && w.two.failed());
  EXPECT_CONTAINS(w.one.error()->text, "would never end");
  EXPECT_TRUE(w.got.empty());
}

TEST(Schedule, FailsAFlagThatNobodyRaisesWhenItIsDrained) {
  Flag flag{0};
  Scheduled w(seeded(7));
  take(w.one, flag);
  w.schedule.drain();
  EXPECT_TRUE(w.one.failed());
  EXPECT_TRUE(w.one.idle());
}

// Work for which another thread or a later callback of an event loop waits runs
// as soon as it can, although its stream lags behind the host.
TEST(Schedule, RunsWhatIsAwaitedOnceItCan) {
  Flag flag{0};
  Scheduled w(seeded(lagging_seed()));
  take(w.one, flag);
  w.append(w.one, 1);
  w.schedule.host_awaits(w.one, w.one.tail());
  EXPECT_TRUE(!w.one.failed() && w.got.empty());
  set(w.two, flag);
  EXPECT_EQ(w.got, Numbers({1}));
  w.append(w.one, 2);  // awaited no longer
  EXPECT_EQ(w.got, Numbers({1}));
}

// Of two random numbers, each is the larger one in half of all cases.
TEST(Schedule, PutsAStreamAboveTheHostByHalfOfAllSeeds) {
  int above = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Scheduled w(seeded(seed));
    w.append(w.one, 1);
    above += !w.got.empty();
  }
  EXPECT_TRUE(above > 160 && above < 240);
}

// Another thread may be about to submit it.
TEST(Schedule, LetsTheHostWaitForWhatIsNotSubmittedYet) {
  Scheduled w(seeded(lagging_seed()));
  w.schedule.host_waits(w.one, 1, WaitReason::kItem);
  w.schedule.host_waits(w.direct, 1, WaitReason::kItem);
  w.append(w.one, 1);
  EXPECT_EQ(w.got, Numbers({1}));
}

TEST(Schedule, LeavesTheMemoryOfAFailedStream) {
  uint64_t memory = 1;
  Scheduled w({lagging_seed(), 0, 0, true});
  fail(w.one);
  w.schedule.freed(w.one, &memory, sizeof memory, FreedTo::kStream);
  EXPECT_EQ(memory, 1);
  EXPECT_EQ(w.one.tail(), 1);
}

TEST(Schedule, RunsNoTaskInsideOfAnother) {
  Scheduled w(seeded(0));
  // Launches on the other stream, and asks for it.
  const std::function<void()> launch = [&] {
    w.append(w.two, 1);
    Event event(Timing::kOff);
    event.record(w.two);
    EXPECT_TRUE(!event.done());
    w.schedule.host_awaits(w.two, w.two.tail());
    w.got.push_back(0);
  };
  submit(w.one, kCallOnHost, {word(&launch)});
  drain(w.two);
  EXPECT_EQ(w.got, Numbers({0, 1}));
}

// Freed memory is overwritten when its stream comes to it.
TEST(Schedule, PoisonsFreedMemoryInTheStreamsOrder) {
  uint64_t memory[4] = {1, 2, 3, 4};
  const uint64_t poison = ~uint64_t{0};
  const auto freed = [&](bool wanted, auto before, Stream Scheduled::*stream,
                         FreedTo where) {
    std::fill(memory, memory + 4, 1);
    Scheduled w({lagging_seed(), 0, 0, wanted});
    before(w);
    w.schedule.freed(w.*stream, memory, 3 * sizeof *memory, where);
    EXPECT_EQ(memory[0], 1);  // nobody has come to it
    drain(w.*stream);
    EXPECT_EQ(memory[3], 1);
    EXPECT_EQ(memory[0], memory[2]);
    return memory[0];
  };
  const auto nothing = [](Scheduled&) {};
  const auto recorded = [&](Scheduled& w) {
    w.schedule.stream_recorded(w.two, memory);
  };
  const auto both = [&](Scheduled& w) {
    w.schedule.stream_recorded(w.two, memory);
    w.schedule.freed(w.one, memory, 8, FreedTo::kStream);
  };
  EXPECT_EQ(freed(true, nothing, &Scheduled::one, FreedTo::kStream), poison);
  EXPECT_EQ(freed(false, nothing, &Scheduled::one, FreedTo::kStream), 1);
  EXPECT_EQ(freed(true, nothing, &Scheduled::one, FreedTo::kGraph), 1);
  EXPECT_EQ(freed(true, nothing, &Scheduled::direct, FreedTo::kStream), 1);
  EXPECT_EQ(freed(true, recorded, &Scheduled::one, FreedTo::kStream), 1);
  EXPECT_EQ(freed(true, both, &Scheduled::one, FreedTo::kStream), poison);
}

// Whichever of the two is asked first.
TEST(Schedule, GoesOnBehindATaskThatAnotherObserverRefuses) {
  struct Refuses final : Observer {
    bool submitted(Stream&, uint64_t, const Task&) override { return true; }
    void published(Stream&, bool refused) override {
      if (refused) throw std::runtime_error("refused");
    }
  } refuses;
  const uint64_t seed = lagging_seed();
  for (const bool first : {false, true}) {
    if (!first) list_observer(refuses, true);
    Scheduled w(seeded(seed));
    if (first) list_observer(refuses, true);
    EXPECT_THROWS(w.append(w.one, 1), std::runtime_error);
    drain(w.one);
    EXPECT_TRUE(w.got.empty() && w.one.idle());
    list_observer(refuses, false);
  }
}

}  // namespace
}  // namespace npu
