#include "csrc/taskqueue/completion_port.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <system_error>

#include "csrc/base/clock.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

void delete_list(Completion* list) {
  while (list) {
    const CompletionPtr first(list);
    list = first->next;
    count_async_waiter(-1);
  }
}

}  // namespace

Completion::Completion(uint64_t number, uint64_t token, CompletionPort& port)
    : number(number), token(token), port(port) {}
Completion::~Completion() = default;

void count_async_waiter(int by) {
  // Relaxed: statistics order nothing.
  segment().process.async_waiters.fetch_add(uint64_t(int64_t(by)),
                                            std::memory_order_relaxed);
}

CompletionPort* CompletionPort::make() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0)
    throw std::system_error(errno, std::generic_category(), "eventfd");
  return new CompletionPort(fd);
}

CompletionPort::~CompletionPort() {
  // Relaxed: nobody else holds the port any more.
  delete_list(delivered_.load(std::memory_order_relaxed));
  delete_list(taken_);
  close(fd_);
}

void CompletionPort::deliver(Completion& completion) {
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
  const uint64_t one = 1;
  // The write cannot fail: the counter is reset long before 2^64.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
}

CompletionPtr CompletionPort::take() {
  if (!taken_) fetch();
  CompletionPtr first(taken_);
  if (!first) return first;
  taken_ = first->next;
  count_async_waiter(-1);
  segment().process.async_wakeup_ns.add_shared(now_ns() - first->delivered_ns);
  return first;
}

void CompletionPort::fetch() {
  // The descriptor is read first: whoever delivers after the exchange finds an
  // empty list and writes again. In the other order this read could swallow
  // that write.
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof count);
  Completion* newest = delivered_.exchange(nullptr, std::memory_order_acquire);
  while (newest) {
    Completion* const older = newest->next;
    newest->next = taken_;
    taken_ = newest;
    newest = older;
  }
}

}  // namespace npu
