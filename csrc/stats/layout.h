// What a process publishes about itself: the bytes of its statistics segment.
//
// Written by the engine, read by anybody who can map the file, also while this
// process hangs. npu_dispatch/stats.py mirrors the offsets, and a test compares
// the two. Any change of a size, an offset or a meaning raises kLayoutVersion.
//
// Every word has one writing thread unless its comment says "added to by any
// thread". Words are read with relaxed loads: a snapshot is not atomic, and
// each word only grows unless its comment says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/base/align.h"

namespace npu {

inline constexpr uint32_t kLayoutVersion = 1;
inline constexpr char kLayoutMagic[8] = {'N', 'P', 'U', 'S',
                                         'T', 'A', 'T', 'S'};
inline constexpr int kMaxStreamBlocks = 256;
inline constexpr int kMaxDeviceBlocks = 64;
inline constexpr int kLatencyBuckets = 48;
inline constexpr int kDepthBuckets = 16;
// Latency and depth are taken for every 16th task.
inline constexpr uint64_t kSamplePeriod = 16;

using Counter = std::atomic<uint64_t>;

// Adds without a read-modify-write instruction. The counter's one writer only.
inline void bump(Counter& counter, uint64_t by = 1) {
  // Relaxed: statistics order nothing.
  counter.store(counter.load(std::memory_order_relaxed) + by,
                std::memory_order_relaxed);
}

// Bucket b counts values v with floor(log2(v)) == b - 1; bucket 0 counts zero.
template <int N>
struct Log2Histogram {
  Counter count;
  Counter sum;
  Counter bucket[N];

  // The histogram's one writer only.
  void add(uint64_t value) {
    int b = value ? 64 - __builtin_clzll(value) : 0;
    if (b >= N) b = N - 1;
    bump(bucket[b]);
    bump(sum, value);
    bump(count);
  }
};

// The words that both ends of a stream's ring share. Producers write the first
// line, the launcher the second; neither is written by the other side. They
// live in the segment, so the depth of a queue can be read from outside for
// nothing.
template <template <typename> class Atomic = std::atomic>
struct RingControl {
  alignas(kCacheLine) Atomic<uint64_t> tail{0};  // positions claimed
  Atomic<uint64_t> known_head{0};                // producers' copy of head
  alignas(kCacheLine) Atomic<uint64_t> head{0};  // positions given back
};

enum class StreamState : uint32_t { kUnused, kRunning, kFailed };

struct StreamBlock {
  // Set once, before `state` leaves kUnused.
  std::atomic<uint32_t> state;  // StreamState
  int32_t device;
  int64_t stream_id;
  uint64_t capacity;

  RingControl<> ring;

  // The launcher's.
  alignas(kCacheLine) Counter retired;  // tasks done, failed or dropped
  Counter failed;
  Counter dropped;          // not run because an earlier task failed
  Counter parks;            // times the launcher went to sleep
  Counter last_retired_ns;  // CLOCK_MONOTONIC, sampled
  alignas(kCacheLine) Log2Histogram<kDepthBuckets> depth;  // tasks
  Log2Histogram<kLatencyBuckets> queued_ns;                // claimed to taken
  Log2Histogram<kLatencyBuckets> latency_ns;               // claimed to retired

  // Added to by any thread.
  alignas(kCacheLine) Counter full_waits;  // times a caller met a full ring
  Counter full_wait_ns;
  Counter inline_tasks;  // ran on the caller: no queue
};

// Why a host thread waited for a device.
enum class WaitReason : uint32_t {
  kItem,  // a value was read: item(), bool(t)
  kCopy,  // a blocking copy
  kStreamSync,
  kEventSync,
  kDeviceSync,
  kOperator,   // an operator whose result shape depends on data
  kAllocator,  // out of memory: waiting before trying again
  kExit,
  kCount
};

struct DeviceBlock {
  // Added to by any thread, indexed by WaitReason.
  Counter waits[int(WaitReason::kCount)];
  Counter wait_ns[int(WaitReason::kCount)];
  Counter memory_total;
  Counter allocated;       // bytes; moves both ways
  Counter allocated_peak;  // bytes
  Counter reserved;        // bytes; moves both ways
};

struct SegmentHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint32_t device_block_bytes;
  uint32_t device_blocks;
  uint32_t stream_block_bytes;
  uint32_t stream_blocks;
  uint32_t pid;
  uint32_t reserved;
  uint64_t process_start;  // field 22 of /proc/<pid>/stat, against pid reuse
  uint64_t monotonic_ns;   // both clocks, read together
  uint64_t realtime_ns;
};

struct Segment {
  SegmentHeader header;
  alignas(kCacheLine) DeviceBlock devices[kMaxDeviceBlocks];
  alignas(kCacheLine) StreamBlock streams[kMaxStreamBlocks];
};

}  // namespace npu
