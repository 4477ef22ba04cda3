// Events, and completions that event loops wait for.
#include <poll.h>

#include "csrc/taskqueue/completion_port.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

TEST(Event, MarksTheTailAndCostsNoTask) {
  Numbers got;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Event event(Timing::kOff);
  EXPECT_TRUE(!event.recorded() && event.done());
  event.synchronize();
  append(stream, got, 1);
  EXPECT_TRUE(event.record(stream));
  EXPECT_EQ(event.number(), 1);
  EXPECT_EQ(stream.tail(), 1);
  EXPECT_TRUE(event.stream() == &stream);
}

TEST(Event, OrdersTwoStreamsBothWays) {
  constexpr uint64_t kRounds = 500;
  Stream a(0, 0, 0, StreamMode::kQueued, 16);
  Stream b(0, 1, 0, StreamMode::kQueued, 16);
  Numbers got;  // plain: TSan sees a missing order
  Event event(Timing::kOff);

  for (uint64_t i = 0; i < kRounds; ++i) {
    append(a, got, 2 * i);
    event.record(a);
    b.wait_for(*event.stream(), event.number());
    append(b, got, 2 * i + 1);
    event.record(b);
    a.wait_for(*event.stream(), event.number());
  }
  event.synchronize();

  EXPECT_EQ(got.size(), 2 * kRounds);
  for (uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i);
}

TEST(Event, NotesTheTimeWhenItsTurnComesEachTimeThatItIsRecorded) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Event before(Timing::kOn), after(Timing::kOn);
  EXPECT_TRUE(after.timing() && !Event(Timing::kOff).timing());
  for (uint64_t round = 0; round < 3; ++round) {
    Gate gate;
    before.record(stream);
    submit(stream, kGate, {word(&gate)});
    after.record(stream);
    EXPECT_EQ(after.number(), 3 * (round + 1));
    gate.wait_until_entered();
    const uint64_t opened = now_ns();
    gate.open();
    after.synchronize();
    EXPECT_TRUE(before.time_ns() <= opened);
    EXPECT_TRUE(after.time_ns() >= opened && after.time_ns() <= now_ns());
  }
}

TEST(Event, MayDieBeforeItsTaskRuns) {
  Gate gate;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  submit(stream, kGate, {word(&gate)});
  auto event = std::make_unique<Event>(Timing::kOn);
  event->record(stream);
  event.reset();
  gate.open();
}

// An event counts as pending on the device where it was last recorded.
TEST(Event, IsPendingOnOneDevice) {
  Stream first(0, 0, 0, StreamMode::kQueued);
  Stream second(1, 0, 0, StreamMode::kQueued);
  const auto pending = [] {
    const auto& devices = segment().devices;
    return std::pair(devices[0].events_pending.load(),
                     devices[1].events_pending.load());
  };
  const auto [on_first, on_second] = pending();
  {
    Event event(Timing::kOff);
    event.record(first);
    EXPECT_EQ(pending(), std::pair(on_first + 1, on_second));
    event.record(second);
    EXPECT_EQ(pending(), std::pair(on_first, on_second + 1));
  }
  EXPECT_EQ(pending(), std::pair(on_first, on_second));
}

// Holds a port for the length of a test.
class Loop {
 public:
  ~Loop() { port_->release(); }
  CompletionPort& port() { return *port_; }
  bool readable(int timeout_ms = 0) {
    pollfd fd{port_->fd(), POLLIN, 0};
    return poll(&fd, 1, timeout_ms) == 1;
  }
  // Sleeps on the descriptor, as an event loop does.
  CompletionPtr next() {
    for (;;) {
      if (auto completion = port_->take()) return completion;
      EXPECT_TRUE(readable(-1));
    }
  }

 private:
  CompletionPort* const port_ = CompletionPort::make();
};

// Nothing is left behind that would hold the port.
TEST(Waiters, AreNotToldOfWhatIsDoneAlready) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  submit(stream, kNothing, {});
  drain(stream);
  int fd;
  {
    Loop loop;
    fd = loop.port().fd();
    EXPECT_TRUE(!stream.notify(1, loop.port(), 7));
    EXPECT_TRUE(!loop.readable());
    EXPECT_TRUE(loop.port().take() == nullptr);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(Waiters, AreToldOnceEachAndSeeTheWritesBefore) {
  Loop loop;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Numbers got;  // plain: TSan sees a missing order
  for (uint64_t i = 0; i < 2000; ++i) {
    append(stream, got, i);
    if (stream.notify(i + 1, loop.port(), i)) {
      const auto completion = loop.next();
      EXPECT_EQ(completion->token, i);
      EXPECT_TRUE(completion->error == nullptr);
    }
    EXPECT_EQ(got.size(), i + 1);
  }
  EXPECT_TRUE(loop.port().take() == nullptr);
}

TEST(Waiters, GetTheirNumbersInWhateverOrderTheyAsked) {
  constexpr uint64_t kTasks = 100;
  Loop loop;
  Streams s;
  submit(s.one, kGate, {word(&s.gate)});
  for (uint64_t i = 1; i < kTasks; ++i) submit(s.one, kNothing, {});
  s.gate.wait_until_entered();
  for (uint64_t i = 0; i < kTasks; ++i) {
    const uint64_t number = (i * 37) % kTasks + 1;
    EXPECT_TRUE(s.one.notify(number, loop.port(), number));
  }
  EXPECT_TRUE(!loop.readable());
  s.gate.open();
  for (uint64_t number = 1; number <= kTasks; ++number)
    EXPECT_EQ(loop.next()->token, number);
}

TEST(Waiters, OfOneNumberCostOneWakeUp) {
  constexpr uint64_t kWaiters = 1000;
  Loop loop;
  Streams s;
  hold(s.one, s.gate);
  for (uint64_t i = 0; i < kWaiters; ++i) s.one.notify(1, loop.port(), i);
  s.gate.open();
  // The launcher delivers, then joins.
  s.one.stop();
  EXPECT_EQ(loop.port().wake_ups(), 1);
  std::set<uint64_t> tokens;
  while (const auto completion = loop.port().take())
    EXPECT_TRUE(tokens.insert(completion->token).second);
  EXPECT_EQ(tokens.size(), kWaiters);
  EXPECT_EQ(*tokens.rbegin(), kWaiters - 1);
  EXPECT_TRUE(!loop.readable());
}

TEST(Waiters, LearnTheErrorOfATaskBeforeTheirsAndOnlyThat) {
  Loop loop;
  Streams s;
  submit(s.one, kGate, {word(&s.gate)});
  submit(s.one, kFail, {NPU_INDEX_ERROR});
  submit(s.one, kNothing, {});
  s.gate.wait_until_entered();
  for (uint64_t number = 1; number <= 3; ++number)
    s.one.notify(number, loop.port(), number);
  s.gate.open();
  EXPECT_TRUE(loop.next()->error == nullptr);
  for (uint64_t number = 2; number <= 3; ++number) {
    const auto completion = loop.next();
    EXPECT_EQ(completion->token, number);
    EXPECT_TRUE(completion->error != nullptr);
    EXPECT_EQ(completion->error->task, 1);
    EXPECT_EQ(completion->error->code, int(NPU_INDEX_ERROR));
  }
  EXPECT_TRUE(error_before(s.one, 1) == nullptr);
  EXPECT_TRUE(error_before(s.one, 2) != nullptr);
}

TEST(Waiters, KeepTheErrorWhenTheStreamHasForgottenIt) {
  Loop loop;
  Streams s;
  submit(s.one, kGate, {word(&s.gate)});
  submit(s.one, kFail, {NPU_ERROR});
  s.gate.wait_until_entered();
  s.one.notify(2, loop.port(), 0);
  s.gate.open();
  EXPECT_TRUE(loop.readable(10'000));
  s.one.clear_error();
  EXPECT_TRUE(loop.next()->error != nullptr);
}

// Who sees the number sees the failure with it: completions are delivered from
// within the advance.
TEST(Waiters, OfAnInlineStreamAreToldByWhoeverRunsIt) {
  for (const bool fails : {false, true}) {
    Loop loop;
    Stream stream(0, 64, 0, StreamMode::kInline);
    EXPECT_TRUE(stream.notify(1, loop.port(), 3));
    submit(stream, fails ? kFail : kNothing, {NPU_ERROR});
    const auto completion = loop.port().take();
    EXPECT_TRUE(completion && completion->token == 3);
    EXPECT_EQ(completion && completion->error, fails);
  }
}

// Several loops, each on its thread, wait for two streams that never rest,
// together with a thread that sleeps for the same numbers.
TEST(Waiters, LoseNoCompletionUnderLoad) {
  constexpr uint64_t kRounds = 3000;
  Stream a(0, 0, 0, StreamMode::kQueued, 64);
  Stream b(0, 1, 0, StreamMode::kQueued, 64);
  std::atomic<uint64_t> told{0};
  on_threads(3, [&](int thread) {
    Loop loop;
    for (uint64_t i = 0; i < kRounds; ++i) {
      if (thread == 2) {
        submit(a, kNothing, {});
        drain(a);
        continue;
      }
      uint64_t pending = 0;
      for (Stream* stream : {thread ? &b : &a, thread ? &a : &b}) {
        submit(*stream, kNothing, {});
        pending += stream->notify(stream->tail(), loop.port(), i);
      }
      for (; pending; --pending) EXPECT_EQ(loop.next()->token, i);
      ++told;
    }
  });
  EXPECT_EQ(told.load(), 2 * kRounds);
}

// Number 0 is a descriptor as good as any.
TEST_ALONE(CompletionPort, MayHaveTheFirstDescriptor) {
  close(0);
  CompletionPort* const port = CompletionPort::make();
  EXPECT_EQ(port->fd(), 0);
  port->release();
}

}  // namespace
}  // namespace npu
