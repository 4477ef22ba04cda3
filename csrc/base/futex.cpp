#include "csrc/base/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace npu {
namespace {

bool register_membarrier() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0,
                 0) == 0;
}

int futex_op(int op, FutexOf of) {
  return of == FutexOf::kProcess ? op | FUTEX_PRIVATE_FLAG : op;
}

}  // namespace

const bool kAsymmetricFences = register_membarrier();

Woken futex_wait(const void* word, uint32_t expected, uint64_t timeout_ns,
                 FutexOf of) {
  timespec limit{time_t(timeout_ns / 1'000'000'000u),
                 long(timeout_ns % 1'000'000'000u)};
  const long rc = syscall(SYS_futex, word, futex_op(FUTEX_WAIT, of), expected,
                          timeout_ns ? &limit : nullptr, nullptr, 0);
  if (rc == 0) return Woken::kMaybeChanged;
  if (errno == ETIMEDOUT) return Woken::kTimeout;
  if (errno == EINTR) return Woken::kSignal;
  return Woken::kMaybeChanged;
}

void futex_wake_all(const void* word, FutexOf of) {
  syscall(SYS_futex, word, futex_op(FUTEX_WAKE, of), INT_MAX, nullptr, nullptr,
          0);
}

void heavy_fence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!kAsymmetricFences ||
      !syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
    return;
  // The call fails in a sandbox that was entered after the registration. The
  // other side has no fence of its own, so going on could lose a wake-up for
  // ever, and a hang would not say why.
  perror(
      "npu_dispatch: membarrier(2), which worked before, is refused; allow it "
      "in the sandbox");
  abort();
}

}  // namespace npu
