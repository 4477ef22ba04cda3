// What a process publishes about itself: the bytes of its statistics segment.
//
// Written by the engine, read by anybody who can map the file, also while this
// process hangs. npu_dispatch/stats/layout.py mirrors the offsets, and a test
// compares the two. Any change of a size, an offset or a meaning raises
// kLayoutVersion.
//
// Every word has one writing thread unless its comment says "added to by any
// thread". Words are read with relaxed loads: a snapshot is not atomic, and
// each word only grows unless its comment says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/base/align.h"

namespace npu {

inline constexpr uint32_t kLayoutVersion = 3;
inline constexpr char kLayoutMagic[8] = {'N', 'P', 'U', 'S',
                                         'T', 'A', 'T', 'S'};
inline constexpr int kMaxStreamBlocks = 256;
inline constexpr int kMaxDeviceBlocks = 64;
inline constexpr int kTimeBuckets = 156;  // up to 2^40 ns, 18 minutes
inline constexpr int kErrorCodes = 8;     // npu_code
inline constexpr int kMaxNames = 1024;
inline constexpr int kMaxSites = 4096;
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

// Nanoseconds, four buckets to each power of two: bucket b < 4 counts the value
// b; bucket 4 * e + f counts [(4 + f) << (e - 1), (5 + f) << (e - 1)).
struct TimeHistogram {
  Counter count;
  Counter sum;
  Counter bucket[kTimeBuckets];

  static int index(uint64_t value) {
    if (value < 4) return int(value);
    const int e = 63 - __builtin_clzll(value);
    const int b = 4 * (e - 1) + int((value >> (e - 2)) & 3);
    return b < kTimeBuckets ? b : kTimeBuckets - 1;
  }

  // The histogram's one writer only.
  void add(uint64_t value) {
    bump(bucket[index(value)]);
    bump(sum, value);
    bump(count);
  }
  // Any thread.
  void add_shared(uint64_t value) {
    // Relaxed: statistics order nothing.
    bucket[index(value)].fetch_add(1, std::memory_order_relaxed);
    sum.fetch_add(value, std::memory_order_relaxed);
    count.fetch_add(1, std::memory_order_relaxed);
  }
};

// A sum of nanoseconds that may be running. One word, so that no reader sees
// it fall: the sum while it stands; while it runs, kRunning plus the moment
// (CLOCK_MONOTONIC) less the sum. One writer.
struct RunningTime {
  static constexpr uint64_t kRunning = uint64_t{1} << 63;
  Counter word;

  // Relaxed throughout: statistics order nothing.
  void start(uint64_t now) {
    word.store(kRunning | (now - word.load(std::memory_order_relaxed)),
               std::memory_order_relaxed);
  }
  void stop(uint64_t now) {
    word.store(now - (word.load(std::memory_order_relaxed) & ~kRunning),
               std::memory_order_relaxed);
  }
  void add(uint64_t ns) { bump(word, ns); }
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
  Counter thread;  // the launcher's thread id; 0: none

  RingControl<> ring;

  // The launcher's.
  alignas(kCacheLine) Counter retired;  // tasks done, failed or dropped
  Counter failed;
  Counter dropped;          // not run because an earlier task failed
  Counter parks;            // gaps in which the launcher went to sleep
  Counter spins;            // gaps that ended before it did
  Counter last_retired_ns;  // CLOCK_MONOTONIC, sampled
  Counter running;          // NameEntry::key of the newest kernel begun
  Counter starved_ns;       // of each gap the first millisecond
  alignas(kCacheLine) RunningTime alive;  // since the launcher started
  RunningTime idle;                       // of that, with an empty queue
  RunningTime held;                       // of that, waiting for another stream
  Counter held_by;     // that stream: 1 + id + (device << 32); 0: none
  Counter held_until;  // the number of its tasks waited for
  Counter woken_ns;    // CLOCK_MONOTONIC, the last time it went to work
  Counter errors[kErrorCodes];  // failures that poisoned it, by npu_code
  Counter running_site;         // SiteEntry of the newest task begun; 0: none
  alignas(kCacheLine) Log2Histogram<kDepthBuckets> depth;  // tasks
  TimeHistogram queued_ns;                                 // claimed to taken
  TimeHistogram latency_ns;                                // claimed to retired
  TimeHistogram run_ns;   // taken to retired, kernels
  TimeHistogram wait_ns;  // taken to retired, waits and time stamps

  // Added to by any thread.
  alignas(kCacheLine) Counter full_waits;  // times a caller met a full ring
  Counter full_wait_ns;
  Counter full_waiting;       // as DeviceBlock::waiting
  Counter full_waiting_from;  // as DeviceBlock::waiting_from
  Counter inline_tasks;       // ran on the caller: no queue
  Counter deferred_bytes;     // freed, another stream may use it; both ways
  TimeHistogram launch_ns;    // from begin() to commit(), on the caller
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

// A wait that is visible, and counted as long as it lasts. Any thread.
class CountedWait {
 public:
  CountedWait(Counter& count, Counter& ns, Counter& open, Counter& from,
              uint64_t now)
      : ns_(ns), open_(open), from_(from), start_(now) {
    // Relaxed throughout: statistics order nothing.
    count.fetch_add(1, std::memory_order_relaxed);
    from_.fetch_add(start_, std::memory_order_relaxed);
    open_.fetch_add(1, std::memory_order_relaxed);
  }
  CountedWait(const CountedWait&) = delete;
  void end(uint64_t now) {
    open_.fetch_sub(1, std::memory_order_relaxed);
    from_.fetch_sub(start_, std::memory_order_relaxed);
    ns_.fetch_add(now - start_, std::memory_order_relaxed);
  }

 private:
  Counter &ns_, &open_, &from_;
  const uint64_t start_;
};

// What a copy went between.
enum class CopyKind : uint32_t { kHostToDevice, kDeviceToHost, kOnDevice };
inline constexpr int kCopyKinds = 3;

// What a race sanitizer may report.
inline constexpr int kReportKinds = 7;

// Added to by any thread, unless said otherwise.
struct DeviceBlock {
  // Indexed by WaitReason.
  Counter waits[int(WaitReason::kCount)];
  Counter wait_ns[int(WaitReason::kCount)];
  // Of waits that have not ended: how many, and the sum of the moments
  // (CLOCK_MONOTONIC) they began at. Both ways.
  Counter waiting[int(WaitReason::kCount)];
  Counter waiting_from[int(WaitReason::kCount)];
  // Under the allocator's lock.
  Counter memory_total;
  Counter allocated;       // bytes; moves both ways
  Counter allocated_peak;  // bytes
  Counter reserved;        // bytes; moves both ways
  Counter allocations;
  Counter alloc_retries;
  Counter ooms;

  Counter copy_bytes[kCopyKinds][2];  // by CopyKind, then pageable, pinned
  // Waits in a region that forbids them: [warned, refused][WaitReason].
  Counter sync_violations[2][int(WaitReason::kCount)];
  // In this order: race_ww, race_rw, alloc_reuse, missing_record_stream,
  // host_read, use_after_free, unordered_raw_launch.
  Counter sanitizer_reports[kReportKinds];
  Counter sanitizer_bytes;  // moves both ways
  Counter sanitizer_ns;
  Counter graph_captures;
  Counter graph_replays;
  Counter graph_capture_failures;
  Counter waiting_site[int(WaitReason::kCount)];  // SiteEntry of the newest
};

// Of the process as a whole. Added to by any thread.
struct ProcessBlock {
  Counter sanitizer_enabled;  // 0 or 1
  Counter trace_dropped;      // events lost to a full trace ring
  Counter async_waiters;      // moves both ways
  TimeHistogram async_wakeup_ns;
};

// The text behind StreamBlock::running. Written once; `key` last.
struct NameEntry {
  Counter key;  // the address of the name in the process; 0: free
  char text[56];
};

// The line behind a call site's id, "train.py:12 in step": entry `id`. Sites
// from kMaxSites on have none. Written once; `known` last.
struct SiteEntry {
  std::atomic<uint32_t> known;
  char text[188];
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
  uint32_t names;
  uint64_t process_start;  // field 22 of /proc/<pid>/stat, against pid reuse
  uint64_t monotonic_ns;   // both clocks, read together
  uint64_t realtime_ns;
  uint64_t pid_namespace;  // inode of /proc/self/ns/pid: where `pid` counts
  // From the environment when the segment was made; "" when unset.
  char rank[16];
  char local_rank[16];
  char world_size[16];
  char job_id[64];
  char pod[64];
};

struct Segment {
  SegmentHeader header;
  alignas(kCacheLine) ProcessBlock process;
  alignas(kCacheLine) DeviceBlock devices[kMaxDeviceBlocks];
  alignas(kCacheLine) StreamBlock streams[kMaxStreamBlocks];
  alignas(kCacheLine) NameEntry names[kMaxNames];
  alignas(kCacheLine) SiteEntry sites[kMaxSites];
};

}  // namespace npu
