// Events, and completions that event loops wait for.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "csrc/stats/segment.h"
#include "csrc/taskqueue/completion_port.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

TEST(Event, MarksTheTailAndCostsNoTask) {
  std::vector<uint64_t> got;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Event event(Timing::kOff);
  EXPECT_TRUE(!event.recorded() && event.done());
  event.synchronize();
  submit(stream, kAppend, {word(&got), 1});
  EXPECT_TRUE(event.record(stream));
  EXPECT_EQ(event.number(), 1);
  EXPECT_EQ(stream.tail(), 1);
  EXPECT_TRUE(event.stream() == &stream);
}

TEST(Event, IsNotDoneBeforeTheWorkItMarks) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  Event event(Timing::kOff);
  event.record(stream);

  gate.wait_until_entered();
  EXPECT_TRUE(!event.done());
  gate.open();
  event.synchronize();
  EXPECT_TRUE(event.done());
}

TEST(Event, OrdersTwoStreamsBothWays) {
  constexpr uint64_t kRounds = 500;
  Stream a(0, 0, 0, StreamMode::kQueued, 16);
  Stream b(0, 1, 0, StreamMode::kQueued, 16);
  std::vector<uint64_t> got;  // plain: TSan sees a missing order
  Event event(Timing::kOff);

  for (uint64_t i = 0; i < kRounds; ++i) {
    submit(a, kAppend, {word(&got), 2 * i});
    event.record(a);
    b.wait_for(*event.stream(), event.number());
    submit(b, kAppend, {word(&got), 2 * i + 1});
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
  const auto pending = [](int device) {
    return segment().devices[device].events_pending.load();
  };
  const uint64_t before[] = {pending(0), pending(1)};
  {
    Event event(Timing::kOff);
    event.record(first);
    EXPECT_TRUE(pending(0) == before[0] + 1 && pending(1) == before[1]);
    event.record(second);
    EXPECT_TRUE(pending(0) == before[0] && pending(1) == before[1] + 1);
  }
  EXPECT_TRUE(pending(0) == before[0] && pending(1) == before[1]);
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

// A stream that is destroyed drops the completions that it has not delivered,
// whether it has sorted them already or not.
TEST(Waiters, ThatAreNeverToldLeaveThePortFree) {
  CompletionPort* const port = CompletionPort::make();
  const int fd = port->fd();
  {
    Stream stream(0, 0, 0, StreamMode::kQueued);
    Waiters waiters;
    for (uint64_t number : {5, 4, 6})
      EXPECT_TRUE(waiters.add(stream.retired(), number, *port, number));
    waiters.retired(stream, 0);
    EXPECT_TRUE(waiters.add(stream.retired(), 3, *port, 3));
    port->release();
    EXPECT_TRUE(fcntl(fd, F_GETFD) != -1);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(Waiters, ThatWereToldLeaveThePortFree) {
  CompletionPort* const port = CompletionPort::make();
  const int fd = port->fd();
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  EXPECT_TRUE(stream.notify(1, *port, 7));
  gate.open();
  drain(stream);
  stream.stop();
  EXPECT_EQ(port->take()->token, 7);
  port->release();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(Waiters, AreToldOnceEachAndSeeTheWritesBefore) {
  Loop loop;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;  // plain: TSan sees a missing order
  for (uint64_t i = 0; i < 2000; ++i) {
    submit(stream, kAppend, {word(&got), i});
    if (stream.notify(i + 1, loop.port(), i)) {
      const auto completion = loop.next();
      EXPECT_TRUE(completion != nullptr);
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
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  for (uint64_t i = 1; i < kTasks; ++i) submit(stream, kNothing, {});
  gate.wait_until_entered();
  for (uint64_t i = 0; i < kTasks; ++i) {
    const uint64_t number = (i * 37) % kTasks + 1;
    EXPECT_TRUE(stream.notify(number, loop.port(), number));
  }
  EXPECT_TRUE(!loop.readable());

  gate.open();

  for (uint64_t number = 1; number <= kTasks; ++number) {
    const auto completion = loop.next();
    EXPECT_TRUE(completion != nullptr);
    EXPECT_EQ(completion->token, number);
  }
}

TEST(Waiters, OfOneNumberCostOneWakeUp) {
  constexpr uint64_t kWaiters = 1000;
  Loop loop;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Gate gate;
  hold(stream, gate);
  for (uint64_t i = 0; i < kWaiters; ++i) stream.notify(1, loop.port(), i);
  gate.open();
  // The launcher delivers, then joins.
  stream.stop();

  EXPECT_EQ(loop.port().wake_ups(), 1);
  uint64_t tokens = 0, n = 0;
  while (const auto completion = loop.port().take()) {
    tokens += completion->token;
    ++n;
  }
  EXPECT_EQ(n, kWaiters);
  EXPECT_EQ(tokens, kWaiters * (kWaiters - 1) / 2);
  EXPECT_TRUE(!loop.readable());
}

TEST(Waiters, LearnTheErrorOfATaskBeforeTheirsAndOnlyThat) {
  Loop loop;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  submit(stream, kFail, {NPU_INDEX_ERROR});
  submit(stream, kNothing, {});
  gate.wait_until_entered();
  for (uint64_t number = 1; number <= 3; ++number)
    stream.notify(number, loop.port(), number);
  gate.open();

  EXPECT_TRUE(loop.next()->error == nullptr);
  for (uint64_t number = 2; number <= 3; ++number) {
    const auto completion = loop.next();
    EXPECT_EQ(completion->token, number);
    EXPECT_TRUE(completion->error != nullptr);
    EXPECT_EQ(completion->error->task, 1);
    EXPECT_EQ(completion->error->code, int(NPU_INDEX_ERROR));
  }
  EXPECT_TRUE(error_before(stream, 1) == nullptr);
  EXPECT_TRUE(error_before(stream, 2) != nullptr);
}

TEST(Waiters, KeepTheErrorWhenTheStreamHasForgottenIt) {
  Loop loop;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  submit(stream, kFail, {NPU_ERROR});
  gate.wait_until_entered();
  stream.notify(2, loop.port(), 0);
  gate.open();
  EXPECT_TRUE(loop.readable(10'000));
  stream.clear_error();

  EXPECT_TRUE(loop.next()->error != nullptr);
}

TEST(Waiters, OutliveTheirLoop) {
  Gate gate;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  hold(stream, gate);
  {
    Loop closed;
    stream.notify(1, closed.port(), 0);
  }
  gate.open();
  stream.stop();
}

TEST(Waiters, OfAnInlineStreamAreToldByWhoeverRunsIt) {
  Loop loop;
  Stream stream(0, 64, 0, StreamMode::kInline);
  EXPECT_TRUE(stream.notify(1, loop.port(), 3));
  submit(stream, kNothing, {});

  EXPECT_EQ(loop.next()->token, 3);
}

// Several loops, each on its thread, wait for two streams that never rest,
// together with a thread that sleeps for the same numbers.
TEST(Waiters, LoseNoCompletionUnderLoad) {
  constexpr uint64_t kRounds = 3000;
  Stream a(0, 0, 0, StreamMode::kQueued, 64);
  Stream b(0, 1, 0, StreamMode::kQueued, 64);
  std::atomic<uint64_t> told{0};
  const auto run = [&](Stream& first, Stream& second) {
    Loop loop;
    for (uint64_t i = 0; i < kRounds; ++i) {
      uint64_t pending = 0;
      for (Stream* stream : {&first, &second}) {
        submit(*stream, kNothing, {});
        pending += stream->notify(stream->tail(), loop.port(), i);
      }
      for (; pending; --pending) {
        const auto completion = loop.next();
        EXPECT_TRUE(completion && completion->token == i);
      }
      told.fetch_add(1, std::memory_order_relaxed);
    }
  };
  std::thread one(run, std::ref(a), std::ref(b));
  std::thread two(run, std::ref(b), std::ref(a));
  std::thread sleeper([&] {
    for (uint64_t i = 0; i < kRounds; ++i) {
      submit(a, kNothing, {});
      host_wait(a, a.tail(), WaitReason::kStreamSync);
    }
  });
  one.join();
  two.join();
  sleeper.join();
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
