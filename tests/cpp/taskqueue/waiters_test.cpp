#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "csrc/taskqueue/completion_port.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::Gate;
using check::kAppend;
using check::kFail;
using check::kGate;
using check::kNothing;
using check::submit;
using check::word;

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

TEST(Waiters, AreNotToldOfWhatIsDoneAlready) {
  Loop loop;
  Stream stream(0, 0, 0, StreamMode::kQueued);
  submit(stream, kNothing, {});
  host_wait(stream, 1, WaitReason::kStreamSync);

  EXPECT_TRUE(!stream.notify(1, loop.port(), 7));

  EXPECT_TRUE(!loop.readable());
  EXPECT_TRUE(loop.port().take() == nullptr);
}

// Nothing is left behind that would hold the port.
TEST(Waiters, OfWhatIsDoneAlreadyLeaveThePortFree) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  submit(stream, kNothing, {});
  host_wait(stream, 1, WaitReason::kStreamSync);
  CompletionPort* const port = CompletionPort::make();
  const int fd = port->fd();
  EXPECT_TRUE(!stream.notify(1, *port, 7));
  port->release();
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
  host_wait(stream, 1, WaitReason::kStreamSync);
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
  submit(stream, kGate, {word(&gate)});
  gate.wait_until_entered();
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
  submit(stream, kGate, {word(&gate)});
  gate.wait_until_entered();
  {
    Loop closed;
    stream.notify(1, closed.port(), 0);
  }
  gate.open();
  stream.stop();
}

TEST(Waiters, AreFreedWithAStreamThatNeverGetsThere) {
  Loop loop;
  {
    Stream stream(0, 0, 0, StreamMode::kQueued);
    submit(stream, kNothing, {});
    stream.notify(5, loop.port(), 0);
    submit(stream, kNothing, {});
    stream.notify(6, loop.port(), 0);
  }
  EXPECT_TRUE(loop.port().take() == nullptr);
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

}  // namespace
}  // namespace npu
