#include "csrc/taskqueue/completion_port.h"

#include "csrc/stats/segment.h"

namespace npu {

// Relaxed: statistics order nothing.
void count_async_waiter(int by) {
  segment().process.async_waiters.fetch_add(uint64_t(int64_t(by)),
                                            std::memory_order_relaxed);
}

void count_async_wakeup(uint64_t delivered_ns) {
  segment().process.async_wakeup_ns.add_shared(now_ns() - delivered_ns);
}

}  // namespace npu
