// Sleeping in the kernel until a 32-bit word changes, and the asymmetric fence
// that lets the other side get by without a fence.
#pragma once

#include <atomic>
#include <cstdint>

namespace npu {

enum class Woken { kMaybeChanged, kTimeout, kSignal };
// Whose threads sleep on a word: this process's, or those of all processes that
// have mapped it.
enum class FutexOf { kProcess, kMachine };

// Sleeps while `*word == expected`, at most `timeout_ns` (0: no limit). Returns
// at once when the word differs. Wake-ups may be spurious: re-check.
Woken futex_wait(const void* word, uint32_t expected, uint64_t timeout_ns,
                 FutexOf of = FutexOf::kProcess);

void futex_wake_all(const void* word, FutexOf of = FutexOf::kProcess);

// An asymmetric Dekker handshake. The frequent side calls light_fence()
// between its store and its load; the rare side (about to sleep) calls
// heavy_fence() between its own. Either the frequent side then sees the
// sleeper's flag, or the sleeper sees the frequent side's store.
//
// Where the kernel has membarrier(2), the light side is a compiler barrier and
// the heavy side interrupts the other cores, which takes it some microseconds;
// elsewhere both are sequentially consistent fences. Where a membarrier(2) that
// has worked is refused later, the process aborts and says why: it would hang.
extern const bool kAsymmetricFences;

inline void light_fence() {
  if (kAsymmetricFences) [[likely]] {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

void heavy_fence();

}  // namespace npu
