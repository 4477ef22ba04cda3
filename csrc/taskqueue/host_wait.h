// The one place where a host thread waits for a device.
#pragma once

#include <cstdint>
#include <functional>

#include "csrc/stats/layout.h"

namespace npu {

class Stream;

// Of a launch that found its stream's ring full.
inline constexpr WaitReason kFullQueue = WaitReason(OpenWait::kFullQueue);

// A wait, as those who watch waits see it.
struct HostWait {
  Stream& stream;
  WaitReason reason;  // or kFullQueue
  const char* op;     // the operator that waits; null: a synchronize() call
  uint64_t pending;   // tasks to be waited for
  uint64_t ns;        // how long it took; 0 before
};

// How the layer above takes part in a wait. All may be null.
struct HostWaitHooks {
  // Around the sleeping part: let go of, and take back, what others need
  // meanwhile (the GIL). `release` returns a token for `reacquire`.
  void* (*release)();
  void (*reacquire)(void* token);
  // After a signal and every 50 ms: throws to abandon the wait (Ctrl-C).
  // Nothing has changed for the caller then, except that time has passed.
  void (*check_interrupt)();
  // While waits are watched: before each one, throws to refuse it.
  void (*before)(const HostWait&);
  // After each one that took time, and after all while waits are watched.
  void (*after)(const HostWait&);
};

void set_host_wait_hooks(const HostWaitHooks& hooks);

// Waits are watched while this has been called more often with true.
void watch_host_waits(bool watch);
bool host_waits_are_watched();

// Returns once `stream` has retired every task below `number`. Spins briefly,
// then sleeps. Counted under `reason`. Does not look at the stream's error.
void host_wait(Stream& stream, uint64_t number, WaitReason reason,
               const char* op = nullptr);

// The same, given up where `goes_on`, asked every 50 ms, says no: false.
bool host_wait_while(Stream& stream, uint64_t number, WaitReason reason,
                     const std::function<bool()>& goes_on);

// The same in two steps, for a caller that must know before it queues work
// whether it may wait for it: the first throws if it may not.
void announce_host_wait(Stream& stream, WaitReason reason, const char* op);
void host_wait_announced(Stream& stream, uint64_t number, WaitReason reason,
                         const char* op);

// For a caller that found the ring full.
void host_wait_for_space(Stream& stream, uint64_t number);

}  // namespace npu
