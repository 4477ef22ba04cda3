// The process's devices and streams, and each thread's current streams.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "csrc/taskqueue/host_wait.h"

namespace npu {

class Observer;
class Stream;

// The pools of streams. A stream's id within its device is its pool times
// kStreamsPerPool, plus its index in the pool.
enum class StreamPool : int64_t {
  kDefault = 0,
  kSyncLaunch = 2,
  kNormal = 3,
  kHigh = 4,
  // From this one to the last: streams for communication, which are outside of
  // the round robin and never handed to programs (distributed/comm_streams.h).
  kComm = 5,
};
inline constexpr int kStreamsPerPool = 32;
inline constexpr int kCommPools = 4;
inline constexpr int kPools = 5 + kCommPools;
inline constexpr int kSyncLaunchStreams = 4;

int device_count();

// False until the first stream of any device exists.
bool initialized();
// True in a child that was forked after initialisation.
bool in_bad_fork();

// The stream with this id, made at the first call; null when `id` is not one
// that this device has. `device` must be in range.
Stream* find_stream(int device, int64_t id);

// The calling thread's stream on a device; the default stream at first.
Stream& current_stream(int device);
void set_current_stream(Stream& stream);

// All streams made so far on a device.
std::vector<Stream*> streams(int device);

// All streams made so far on all devices; none before initialisation.
std::vector<Stream*> all_streams();

// While the lock is held no stream is made, so that a setting which is told to
// all streams reaches every one. The holder must not wait for anything.
std::unique_lock<std::mutex> hold_streams();
// Like hold_streams(), but the lock is empty where another thread holds it.
std::unique_lock<std::mutex> try_hold_streams();

// Waits for everything submitted to the device so far.
void synchronize_device(int device, WaitReason reason);

// Does this too, and then lets the device's failed streams take work again.
void clear_errors(int device);

// Installs an observer on every present and future stream, or removes it. The
// caller makes sure that no thread is inside a call of a removed one before
// destroying it.
void install_observer(Observer& observer, bool installed);

// Finishes what is queued, ends all launchers and removes the segment. Reports
// errors of streams that nobody has cleared. Runs at exit by itself.
void shut_down();

}  // namespace npu
