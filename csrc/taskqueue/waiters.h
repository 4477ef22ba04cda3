// Who is to be told when a stream has retired a number of tasks, with no thread
// that waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "csrc/base/align.h"
#include "csrc/taskqueue/completion_port.h"
#include "csrc/taskqueue/sequence.h"

namespace npu {

class Stream;

// The stream's error, where the task that failed is before `number`; else null.
std::shared_ptr<const StreamError> error_before(const Stream& stream,
                                                uint64_t number);

template <typename System>
class BasicWaiters {
 public:
  BasicWaiters() = default;
  ~BasicWaiters();
  BasicWaiters(const BasicWaiters&) = delete;

  // True: `port` gets a completion with this token once `retired` reaches
  // `number`, perhaps before this returns. False: it has been reached, and
  // nothing is delivered. Any thread; never waits.
  bool add(BasicSequence<System>& retired, uint64_t number,
           BasicCompletionPort<System>& port, uint64_t token);

  // Called by the stream's advancing thread after an advance_to() that somebody
  // waited for: delivers what has been reached, and arms the sequence for the
  // next number.
  template <typename Stream>
  void retired(Stream& stream, uint64_t number);

 private:
  using Completion = BasicCompletion<System>;

  // The pairing heap: children are linked through `next`.
  static Completion* meld(Completion* a, Completion* b);
  // The heap without its top.
  static Completion* without_top(Completion* top);

  static void drop(Completion* completion) {
    completion->port.release();
    completion->release();
  }
  template <typename Stream>
  static void tell(const Stream& stream, Completion& reached);

  // Completions that the advancing thread has not yet seen; newest first.
  alignas(kCacheLine)
      typename System::template Atomic<Completion*> added_{nullptr};
  // The advancing thread's: a pairing heap with the smallest number on top.
  Completion* heap_ = nullptr;
};

template <typename System>
auto BasicWaiters<System>::meld(Completion* a, Completion* b) -> Completion* {
  if (!a) return b;
  if (!b) return a;
  if (b->number < a->number) std::swap(a, b);
  b->next = a->child;
  a->child = b;
  return a;
}

template <typename System>
auto BasicWaiters<System>::without_top(Completion* top) -> Completion* {
  Completion* pairs = nullptr;
  for (Completion* rest = top->child; rest;) {
    Completion* const a = rest;
    Completion* const b = a->next;
    rest = b ? static_cast<Completion*>(b->next) : nullptr;
    Completion* const pair = meld(a, b);
    pair->next = pairs;
    pairs = pair;
  }
  Completion* heap = nullptr;
  while (pairs) {
    Completion* const next = pairs->next;
    pairs->next = nullptr;
    heap = meld(heap, pairs);
    pairs = next;
  }
  top->child = nullptr;
  return heap;
}

template <typename System>
template <typename Stream>
void BasicWaiters<System>::tell(const Stream& stream, Completion& reached) {
  if (!reached.take()) return drop(&reached);
  reached.error = error_before(stream, reached.number);
  auto& port = reached.port;
  port.deliver(reached);
  port.release();
}

template <typename System>
BasicWaiters<System>::~BasicWaiters() {
  Completion* added = added_.load(std::memory_order_relaxed);
  while (added) {
    Completion* const next = added->next;
    drop(added);
    added = next;
  }
  while (heap_) {
    Completion* const top = heap_;
    heap_ = without_top(top);
    drop(top);
  }
}

template <typename System>
bool BasicWaiters<System>::add(BasicSequence<System>& retired, uint64_t number,
                               BasicCompletionPort<System>& port,
                               uint64_t token) {
  if (retired.reached(number)) return false;
  // Ours until the end: it may be delivered and read before that.
  const std::unique_ptr<Completion, ReleaseCompletion> completion(
      new Completion(number, token, port));
  port.hold();
  count_async_waiter(1);
  Completion* newest = added_.load(std::memory_order_relaxed);
  do {
    completion->next = newest;
    // Release: the advancing thread reads the completion. Acquire: where the
    // advancing thread emptied the list for the last time before our push,
    // arm() below sees that it has also withdrawn its old target.
  } while (!added_.compare_exchange_weak(newest, completion.get(),
                                         std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  if (!retired.arm(number)) return true;
  // The number was reached meanwhile, and the advancing thread may have looked
  // before our push. If we win here the caller is told by the result, and the
  // completion stays in the list until the advancing thread drops it.
  if (!completion->take()) return true;
  count_async_waiter(-1);
  return false;
}

template <typename System>
template <typename Stream>
void BasicWaiters<System>::retired(Stream& stream, uint64_t number) {
  Completion* added = added_.exchange(nullptr, std::memory_order_acq_rel);
  Completion* oldest = nullptr;
  while (added) {
    Completion* const next = added->next;
    added->next = oldest;
    oldest = added;
    added = next;
  }
  while (heap_ && heap_->number <= number) {
    Completion* const top = heap_;
    heap_ = without_top(top);
    tell(stream, *top);
  }
  // What was added and is reached does not pass through the heap: thousands may
  // wait for one number.
  while (oldest) {
    Completion* const next = oldest->next;
    oldest->next = nullptr;
    if (oldest->number <= number) {
      tell(stream, *oldest);
    } else {
      heap_ = meld(heap_, oldest);
    }
    oldest = next;
  }
  if (heap_) stream.retired().rearm(heap_->number);
}

using Waiters = BasicWaiters<System>;
extern template class BasicWaiters<System>;
extern template void Waiters::retired(Stream&, uint64_t);

}  // namespace npu
