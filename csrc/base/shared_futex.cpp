#include "csrc/base/shared_futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace npu {

void shared_futex_wait(const void* word, uint32_t expected,
                       uint64_t timeout_ns) {
  const timespec limit{time_t(timeout_ns / 1'000'000'000u),
                       long(timeout_ns % 1'000'000'000u)};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void shared_futex_wake_all(const void* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace npu
