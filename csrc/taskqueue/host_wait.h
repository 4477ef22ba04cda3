// The one place where a host thread waits for a device.
#pragma once

#include <cstdint>

#include "csrc/stats/layout.h"

namespace npu {

class Stream;

// How the layer above takes part in a wait. All may be null.
struct HostWaitHooks {
  // Around the sleeping part: let go of, and take back, what others need
  // meanwhile (the GIL). `release` returns a token for `reacquire`.
  void* (*release)();
  void (*reacquire)(void* token);
  // After a signal and every 50 ms: throws to abandon the wait (Ctrl-C).
  // Nothing has changed for the caller then, except that time has passed.
  void (*check_interrupt)();
};

void set_host_wait_hooks(const HostWaitHooks& hooks);

// Returns once `stream` has retired every task below `number`. Spins briefly,
// then sleeps. Counted under `reason`. Does not look at the stream's error.
void host_wait(Stream& stream, uint64_t number, WaitReason reason);

// The same without a reason: for a caller that found the ring full.
void host_wait_for_space(Stream& stream, uint64_t number);

}  // namespace npu
