// The process's devices and streams, and which stream a thread is on.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "csrc/taskqueue/host_wait.h"

namespace npu {

class Observer;
class Stream;

// A stream's id within its device: kind in the high bits, index in the low 5.
enum class StreamPool : int64_t {
  kDefault = 0,
  kSyncLaunch = 2,
  kNormal = 3,
  kHigh = 4,
  // Of communication, from this one to the last: outside the round robin, and
  // never handed to programs (distributed/comm_streams.h).
  kComm = 5,
};
inline constexpr int kStreamsPerPool = 32;
// A stream's id is its pool times kStreamsPerPool, plus its place there.
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

// Those of all devices; none before initialisation.
std::vector<Stream*> all_streams();

// While it is held no stream is made, so that what is told to all of them is
// told to every one. Nothing may be waited for meanwhile.
std::unique_lock<std::mutex> hold_streams();
// The same, empty where another thread holds them.
std::unique_lock<std::mutex> try_hold_streams();

// Waits for everything submitted to the device so far.
void synchronize_device(int device, WaitReason reason);

// Installs an observer on every present and future stream, or removes it with
// null. The caller makes sure that no thread is inside a call of the old one
// before destroying it.
void install_observer(Observer* observer);

// Whether tasks are profiled, on all streams (observe/profile.h).
void set_profiled(bool profiled);

// Finishes what is queued, ends all launchers, removes the segment. Reports an
// error nobody has seen. Runs at exit by itself; a second call does nothing.
void shut_down();

}  // namespace npu
