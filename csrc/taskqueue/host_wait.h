// The one place where a host thread waits for a device.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "csrc/stats/layout.h"

namespace npu {

class Stream;

// The reason of a launch that found its stream's ring full.
inline constexpr WaitReason kFullQueue = WaitReason(OpenWait::kFullQueue);
// That of a blocking copy which waits on CUDA, and here does not.
inline constexpr WaitReason kStagedCopy = WaitReason(OpenWait::kFullQueue + 1);

// A wait, as those who watch waits see it.
struct HostWait {
  Stream& stream;
  WaitReason reason;  // or kFullQueue, kStagedCopy
  const char* op;     // the operator that waits; null: a synchronize() call
  uint64_t pending;   // tasks to be waited for
  uint64_t ns;        // how long it took; 0 before
};

// Calls `wait` with the hooks' token released.
void while_released(const std::function<void()>& wait);

// Locks a mutex whose holder may run tasks, or wait for some: they may want
// the GIL, which is given up while the mutex is waited for.
template <typename Mutex>
std::unique_lock<Mutex> lock_released(Mutex& mutex) {
  std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock) while_released([&] { lock.lock(); });
  return lock;
}

// Waits are watched while this has been called more often with true than with
// false.
void watch_host_waits(bool watch);
bool host_waits_are_watched();

// Returns once `stream` has retired every task below `number`. Spins briefly,
// then sleeps. Counted under `reason`. Does not look at the stream's error.
void host_wait(Stream& stream, uint64_t number, WaitReason reason,
               const char* op = nullptr);

// Like host_wait(), but gives up and returns false where `goes_on`, asked every
// 50 ms, says no.
bool host_wait_while(Stream& stream, uint64_t number, WaitReason reason,
                     const std::function<bool()>& goes_on);

// Whether `stream` has retired every task below `number`. To see that it has
// orders what follows, as waiting would. Any thread.
bool host_poll(Stream& stream, uint64_t number);

// host_wait() in two steps, for a caller that must know before it queues work
// whether it may wait for that work: the first step throws where it may not.
void announce_host_wait(Stream& stream, WaitReason reason, const char* op);
void host_wait_announced(Stream& stream, uint64_t number, WaitReason reason,
                         const char* op);

// Tells those who watch waits of a copy from the host that does not wait.
// Throws where they refuse it.
void tell_staged_copy(Stream& stream, const char* op);

// Waits on behalf of a caller that found the ring full.
void host_wait_for_space(Stream& stream, uint64_t number);

}  // namespace npu
