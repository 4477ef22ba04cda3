// Sleeping until a 32-bit word changes that other processes have mapped, too.
#pragma once

#include <cstdint>

namespace npu {

// Sleeps while `*word == expected`, at most `timeout_ns`, which is not 0. Wakes
// at once when the word differs. Wake-ups may be spurious: re-check.
void shared_futex_wait(const void* word, uint32_t expected,
                       uint64_t timeout_ns);

void shared_futex_wake_all(const void* word);

}  // namespace npu
