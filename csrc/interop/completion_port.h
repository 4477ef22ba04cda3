// Where threads that may not wait learn that a stream got there: completions
// are pushed by launchers, and one file descriptor says that there are some.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace npu {

class CompletionPort;
struct StreamError;

// "Tell `port` once the stream has retired `number` tasks." Made by
// Waiters::add(), owned by the stream until it is delivered, then by the port,
// then by whoever take()s it.
struct Completion {
  Completion(uint64_t number, uint64_t token, CompletionPort& port);
  ~Completion();

  const uint64_t number;
  const uint64_t token;  // the waiter's own name for it
  CompletionPort& port;
  uint64_t delivered_ns = 0;  // CLOCK_MONOTONIC
  // Why the work is not done; null when it is.
  std::unique_ptr<StreamError> error;

  // Set by whichever of adder and launcher finds the number reached first.
  std::atomic<bool> taken{false};
  Completion* next = nullptr;   // in a list, or a heap's sibling
  Completion* child = nullptr;  // in a heap
};

// One completion more, or less, that somebody awaits. Any thread.
void count_async_waiter(int by);

// One per event loop. Lives as long as somebody holds it: completions on their
// way do, so that the descriptor's number is not used for another file while a
// launcher may still write to it.
class CompletionPort {
 public:
  // Held once by the caller. Throws std::system_error without descriptors.
  static CompletionPort* make();

  void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    // Acquire-release: the last holder's delete comes after the others' use.
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Readable while there may be something to take.
  int fd() const { return fd_; }

  // Any thread; never waits. Writes to the descriptor only when nothing was
  // waiting to be taken: one wake-up for however many completions.
  void deliver(Completion& completion);

  // The next completion, oldest first, or null; the caller's to delete. One
  // thread at a time. Only with nothing left over from the last time does it
  // ask the descriptor.
  std::unique_ptr<Completion> take();

  // Completions taken from the launchers and not yet by the caller.
  bool left_over() const { return taken_ != nullptr; }

  // Times the descriptor was written to.
  uint64_t wake_ups() const {
    return wake_ups_.load(std::memory_order_relaxed);
  }

 private:
  explicit CompletionPort(int fd) : fd_(fd) {}
  ~CompletionPort();
  void fetch();

  const int fd_;
  std::atomic<int> holders_{1};
  std::atomic<Completion*> delivered_{nullptr};  // newest first
  std::atomic<uint64_t> wake_ups_{0};
  Completion* taken_ = nullptr;  // oldest first
};

}  // namespace npu
