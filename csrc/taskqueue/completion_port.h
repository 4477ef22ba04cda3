// Where threads that may not wait learn that a stream has reached a number:
// launchers push completions, and one file descriptor says that there are some.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "csrc/base/clock.h"
#include "csrc/taskqueue/system.h"

namespace npu {

template <typename System>
class BasicCompletionPort;
struct StreamError;

// Tells `port` that the stream has retired `number` tasks. Waiters::add() makes
// it. The stream has it until it is delivered, then the port, then whoever
// takes it.
template <typename System>
struct BasicCompletion : System::Allocated {
  BasicCompletion(uint64_t number, uint64_t token,
                  BasicCompletionPort<System>& port)
      : number(number), token(token), port(port) {}

  const uint64_t number;
  const uint64_t token;  // chosen by the waiter, to know it again
  BasicCompletionPort<System>& port;
  uint64_t delivered_ns = 0;  // CLOCK_MONOTONIC
  // Why the work is not done; null when it is.
  std::shared_ptr<const StreamError> error;

  // Whoever adds it uses it a little longer than it may take to be delivered
  // and read.
  void release() {
    // Acquire-release: the last of the two deletes after the other's last use.
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // True for the adder or the launcher, whichever first finds the number
  // reached. Relaxed: it only decides between them; release() orders their use.
  bool take() { return !taken_.exchange(true, std::memory_order_relaxed); }

  using Link = typename System::template Plain<BasicCompletion*>;
  Link next{nullptr};   // in a list; in a heap, the sibling
  Link child{nullptr};  // in a heap

 private:
  typename System::template Atomic<bool> taken_{false};
  typename System::template Atomic<int> users_{2};
};

struct ReleaseCompletion {
  void operator()(auto* completion) const { completion->release(); }
};

// Counts one more, or one fewer, completion that somebody waits for. Any
// thread.
void count_async_waiter(int by);
// Counts how long a completion was on its way to its taker.
void count_async_wakeup(uint64_t delivered_ns);

// There is one port per event loop. It lives as long as somebody holds it.
// Completions on their way hold it, so that the descriptor's number is not
// given to another file while a launcher may still write to it.
template <typename System>
class BasicCompletionPort : System::Allocated {
 public:
  using Completion = BasicCompletion<System>;
  using CompletionPtr = std::unique_ptr<Completion, ReleaseCompletion>;

  // The caller holds it once. Throws std::system_error where no descriptor is
  // left.
  static BasicCompletionPort* make() { return new BasicCompletionPort; }

  void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    // Acquire-release: the last holder deletes after the others' last use.
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Readable while there may be something to take.
  int fd() const { return fd_.fd(); }

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
  BasicCompletionPort() = default;
  ~BasicCompletionPort() {
    // Relaxed: nobody else holds the port any more.
    delete_list(delivered_.load(std::memory_order_relaxed));
    delete_list(taken_);
  }
  static void delete_list(Completion* list) {
    while (list) {
      const CompletionPtr first(list);
      list = first->next;
      count_async_waiter(-1);
    }
  }
  void fetch();

  template <typename T>
  using Atomic = typename System::template Atomic<T>;

  typename System::EventFd fd_;
  Atomic<int> holders_{1};
  Atomic<Completion*> delivered_{nullptr};  // newest first
  Atomic<uint64_t> wake_ups_{0};
  Completion* taken_ = nullptr;  // oldest first
};

template <typename System>
void BasicCompletionPort<System>::deliver(Completion& completion) {
  completion.delivered_ns = now_ns();
  Completion* newest = delivered_.load(std::memory_order_relaxed);
  do {
    completion.next = newest;
    // Release: pairs with the acquire in fetch(), so that the completion, and
    // every write of the tasks before it, is visible to whoever takes it.
  } while (!delivered_.compare_exchange_weak(newest, &completion,
                                             std::memory_order_release,
                                             std::memory_order_relaxed));
  // From here on the taker may have deleted the completion.
  if (newest) return;
  wake_ups_.fetch_add(1, std::memory_order_relaxed);
  fd_.signal();
}

template <typename System>
auto BasicCompletionPort<System>::take() -> CompletionPtr {
  if (!taken_) fetch();
  CompletionPtr first(taken_);
  if (!first) return first;
  taken_ = first->next;
  count_async_waiter(-1);
  count_async_wakeup(first->delivered_ns);
  return first;
}

template <typename System>
void BasicCompletionPort<System>::fetch() {
  // The descriptor is read first: whoever delivers after the exchange finds an
  // empty list and writes again. In the other order this read could swallow
  // that write.
  fd_.clear();
  Completion* newest = delivered_.exchange(nullptr, std::memory_order_acquire);
  while (newest) {
    Completion* const older = newest->next;
    newest->next = taken_;
    taken_ = newest;
    newest = older;
  }
}

using Completion = BasicCompletion<System>;
using CompletionPort = BasicCompletionPort<System>;
using CompletionPtr = CompletionPort::CompletionPtr;

}  // namespace npu
