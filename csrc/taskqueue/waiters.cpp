#include "csrc/taskqueue/waiters.h"

#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

template class BasicWaiters<System>;
template void Waiters::retired(Stream&, uint64_t);

std::shared_ptr<const StreamError> error_before(const Stream& stream,
                                                uint64_t number) {
  auto error = stream.error();
  if (error && error->task >= number) error.reset();
  return error;
}

// Relaxed: statistics order nothing.
void count_async_waiter(int by) {
  segment().process.async_waiters.fetch_add(uint64_t(int64_t(by)),
                                            std::memory_order_relaxed);
}

void count_async_wakeup(uint64_t delivered_ns) {
  segment().process.async_wakeup_ns.add_shared(now_ns() - delivered_ns);
}

}  // namespace npu
