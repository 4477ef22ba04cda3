#include "csrc/taskqueue/waiters.h"

#include <utility>

#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

// The pairing heap: children are linked through `next`.

Completion* meld(Completion* a, Completion* b) {
  if (!a) return b;
  if (!b) return a;
  if (b->number < a->number) std::swap(a, b);
  b->next = a->child;
  a->child = b;
  return a;
}

// The heap without its top.
Completion* without_top(Completion* top) {
  Completion* pairs = nullptr;
  for (Completion* rest = top->child; rest;) {
    Completion* const a = rest;
    Completion* const b = a->next;
    rest = b ? b->next : nullptr;
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

void drop(Completion* completion) {
  completion->port.release();
  completion->release();
}

// True for whichever of the adding and the advancing thread comes first.
// Acquire-release: the loser must not free what the winner still reads.
bool take(Completion& completion) {
  return !completion.taken.exchange(true, std::memory_order_acq_rel);
}

void tell(const Stream& stream, Completion& reached) {
  if (!take(reached)) return drop(&reached);
  reached.error = error_before(stream, reached.number);
  CompletionPort& port = reached.port;
  port.deliver(reached);
  port.release();
}

}  // namespace

Waiters::~Waiters() {
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

bool Waiters::add(Sequence& retired, uint64_t number, CompletionPort& port,
                  uint64_t token) {
  if (retired.reached(number)) return false;
  // Ours until the end: it may be delivered and read before that.
  const CompletionPtr completion(new Completion(number, token, port));
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
  if (!take(*completion)) return true;
  count_async_waiter(-1);
  return false;
}

void Waiters::retired(Stream& stream, uint64_t number) {
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

std::unique_ptr<StreamError> error_before(const Stream& stream,
                                          uint64_t number) {
  auto error = stream.error();
  if (error && error->task >= number) error.reset();
  return error;
}

}  // namespace npu
