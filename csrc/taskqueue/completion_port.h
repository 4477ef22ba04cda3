// Where threads that may not wait learn that a stream has reached a number:
// launchers push completions, and one file descriptor says that there are some.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace npu {

class CompletionPort;
struct StreamError;

// Tells `port` that the stream has retired `number` tasks. Waiters::add() makes
// it. The stream has it until it is delivered, then the port, then whoever
// takes it.
struct Completion {
  Completion(uint64_t number, uint64_t token, CompletionPort& port);

  const uint64_t number;
  const uint64_t token;  // chosen by the waiter, to know it again
  CompletionPort& port;
  uint64_t delivered_ns = 0;  // CLOCK_MONOTONIC
  // Why the work is not done; null when it is.
  std::unique_ptr<StreamError> error;

  // Whoever adds it uses it a little longer than it may take to be delivered
  // and read.
  void release() {
    // Acquire-release: the last of the two deletes after the other's last use.
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Set by the adder or the launcher, whichever first finds the number reached.
  std::atomic<bool> taken{false};
  Completion* next = nullptr;   // in a list; in a heap, the sibling
  Completion* child = nullptr;  // in a heap

 private:
  ~Completion();
  std::atomic<int> users_{2};
};

struct ReleaseCompletion {
  void operator()(Completion* completion) const { completion->release(); }
};
using CompletionPtr = std::unique_ptr<Completion, ReleaseCompletion>;

// Counts one more, or one fewer, completion that somebody waits for. Any
// thread.
void count_async_waiter(int by);

// There is one port per event loop. It lives as long as somebody holds it.
// Completions on their way hold it, so that the descriptor's number is not
// given to another file while a launcher may still write to it.
class CompletionPort {
 public:
  // The caller holds it once. Throws std::system_error where no descriptor is
  // left.
  static CompletionPort* make();

  void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    // Acquire-release: the last holder deletes after the others' last use.
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Readable while there may be something to take.
  int fd() const { return fd_; }

  // Any thread; never waits. Writes to the descriptor only where no delivered
  // completion was waiting to be fetched: one wake-up for any number of them.
  void deliver(Completion& completion);

  // The next completion, oldest first, or null. One thread at a time. Reads the
  // descriptor only when nothing is left over from the last read.
  CompletionPtr take();

  // Whether there are completions that were fetched and not yet taken.
  bool left_over() const { return taken_ != nullptr; }

  // How often the descriptor was written to.
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
