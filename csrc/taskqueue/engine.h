// The process's devices and streams, and which stream a thread is on.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/taskqueue/host_wait.h"

namespace npu {

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

// The next stream of a pool, round robin.
Stream& next_stream(int device, StreamPool pool);

// The calling thread's stream on a device; the default stream at first.
Stream& current_stream(int device);
void set_current_stream(Stream& stream);

// All streams made so far on a device.
std::vector<Stream*> streams(int device);

// Waits for everything submitted to the device so far.
void synchronize_device(int device, WaitReason reason);

// Whether callers wait for each task they launch: all of the process, or the
// calling thread alone. The second returns what it was before.
void set_launch_blocking(bool blocking);
bool set_thread_launch_blocking(bool blocking);
// Either of the two, for the calling thread.
bool launch_blocks();

// Whether tasks are profiled, on all streams (profile.h).
void set_profiled(bool profiled);

// Finishes what is queued, ends all launchers, removes the segment. Reports an
// error nobody has seen. Runs at exit by itself; a second call does nothing.
void shut_down();

}  // namespace npu
