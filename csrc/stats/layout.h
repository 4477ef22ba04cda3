// What a process publishes about itself: the bytes of its statistics segment.
//
// The engine writes it, and anybody who can map the file reads it, even while
// this process hangs. npu_dispatch/observe/segment/layout.py mirrors the
// offsets, and a test compares the two. Any change of a size, an offset or a
// meaning raises kLayoutVersion.
//
// Every word has one writing thread unless its comment says "added to by any
// thread". Words are read with relaxed loads: a snapshot is not atomic, and
// each word only grows unless its comment says otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "csrc/base/align.h"

namespace npu {

inline constexpr uint32_t kLayoutVersion = 16;
inline constexpr char kLayoutMagic[8] = {'N', 'P', 'U', 'S',
                                         'T', 'A', 'T', 'S'};
inline constexpr int kMaxStreamBlocks = 256;
inline constexpr int kMaxDeviceBlocks = 64;
inline constexpr int kTimeBuckets = 156;  // up to 2^40 ns, 18 minutes
inline constexpr int kErrorCodes = 8;     // npu_code
inline constexpr int kMaxNames = 1024;
inline constexpr int kMaxSites = 8192;
inline constexpr int kDepthBuckets = 16;
// One task in kSamplePeriod is timed. The depth of a queue is read at one task
// in four times as many, because reading the tail takes its line from the
// callers.
inline constexpr uint64_t kSamplePeriod = 16;
inline constexpr uint64_t kDepthPeriod = 4 * kSamplePeriod;
inline constexpr uint64_t kRecentTasks = 128;  // of each stream
inline constexpr int kExemplarOctaves = 41;
inline constexpr int kMaxOpenWaits = 64;

using Counter = std::atomic<uint64_t>;

// Whether the n-th item of a sequence is measured, which one in `period` is.
// Multiples of the golden ratio are spread evenly whatever the stride of n, so
// a program that repeats its tasks has each of them measured equally often; n %
// period would meet the same ones again and again. Two measured items are 13,
// 21 or 34 apart for a period of 16.
constexpr bool is_sampled(uint64_t n, uint64_t period = kSamplePeriod) {
  return uint32_t(n) * 0x9e3779b9u < (uint64_t{1} << 32) / period;
}

// Adds without a read-modify-write instruction. Only for a counter's one
// writer.
inline void bump(Counter& counter, uint64_t by = 1) {
  // Relaxed: statistics order nothing.
  counter.store(counter.load(std::memory_order_relaxed) + by,
                std::memory_order_relaxed);
}

// Writes a word that another one orders, or none does.
inline void put(Counter& word, uint64_t value) {
  word.store(value, std::memory_order_relaxed);
}

// Changes words that other processes read meanwhile. `guard` is `writing` until
// they are all there, and `written` from then on. A reader that finds the same
// value in it before and after it has read the words, and that value is not
// `writing`, has read what belongs together. One thread at a time writes.
template <typename Write>
void write_guarded(Counter& guard, uint64_t writing, uint64_t written,
                   Write&& write) {
  guard.store(writing, std::memory_order_relaxed);
  // Release: the words do not become visible before `writing`.
  std::atomic_thread_fence(std::memory_order_release);
  write();
  // Release: whoever sees `written` sees the words.
  guard.store(written, std::memory_order_release);
}

// Where several threads may write: takes the words for the calling one, which
// calls write_guarded() next. False where another thread was faster.
inline bool claim(Counter& guard, uint64_t found, uint64_t writing) {
  // Acquire: our words come after those of the last writer.
  return guard.compare_exchange_strong(
      found, writing, std::memory_order_acquire, std::memory_order_relaxed);
}

// Values by bucket: Index::of(value) is a value's, and too large a value is in
// the last one.
template <typename Index, int N>
struct Histogram {
  Counter count;
  Counter sum;
  Counter bucket[N];

  static int index(uint64_t value) {
    const int b = Index::of(value);
    return b < N ? b : N - 1;
  }
  // Only for the histogram's one writer.
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

// Bucket b counts values v with floor(log2(v)) == b - 1; bucket 0 counts zero.
struct Octaves {
  static int of(uint64_t value) {
    return value ? 64 - __builtin_clzll(value) : 0;
  }
};
template <int N>
using Log2Histogram = Histogram<Octaves, N>;

// Four buckets to each power of two: bucket b < 4 counts the value b; bucket 4
// * e + f, f < 4, counts the values in [(4 + f) << (e - 1), (5 + f) << (e -
// 1)).
struct QuarterOctaves {
  static int of(uint64_t value) {
    if (value < 4) return int(value);
    const int e = 63 - __builtin_clzll(value);
    return 4 * (e - 1) + int((value >> (e - 2)) & 3);
  }
};
using TimeHistogram = Histogram<QuarterOctaves, kTimeBuckets>;  // nanoseconds

// The newest task of each octave of a time histogram. One writer.
struct Exemplars {
  struct Entry {
    Counter task;   // 1 + its number; 0: none, or being changed
    Counter value;  // nanoseconds
    Counter at;     // CLOCK_MONOTONIC
  };
  Entry octave[kExemplarOctaves];  // values from 2^i ns on

  void note(uint64_t task, uint64_t value, uint64_t at) {
    int i = value ? Octaves::of(value) - 1 : 0;
    if (i >= kExemplarOctaves) i = kExemplarOctaves - 1;
    Entry& entry = octave[i];
    write_guarded(entry.task, 0, task + 1, [&] {
      put(entry.value, value);
      put(entry.at, at);
    });
  }
};

// What one task was. Task n has entry n % kRecentTasks of its stream from when
// it begins until task n + kRecentTasks begins: an entry says whose it is. A
// reader that then finds `retired` below that number has read one entry.
struct RecentTask {
  static constexpr uint64_t kDropped = uint64_t{1} << 32;
  static constexpr uint64_t kFailed = uint64_t{1} << 33;
  static constexpr int kTaskShift = 34;

  Counter name;  // NameEntry::key
  Counter site;  // SiteEntry, 0: not known; the bits; the task's low bits
};

// Why a stream has failed. One writer at a time: Stream::fail().
struct FailureNote {
  Counter guard;   // even: the words below are there, of failure guard / 2
  Counter site;    // SiteEntry; 0: not known
  char text[176];  // "operator: what its kernel said", cut short

  void set(uint64_t line, const char* operator_name, const char* what) {
    // Relaxed: we are the only writer.
    const uint64_t before = guard.load(std::memory_order_relaxed);
    write_guarded(guard, before + 1, before + 2, [&] {
      put(site, line);
      snprintf(text, sizeof text, "%s: %s", operator_name, what);
    });
  }
};

// A sum of nanoseconds that may be running. It is one word, so that no reader
// sees the sum fall: while it stands, the word is the sum; while it runs, the
// word is kRunning plus the moment (CLOCK_MONOTONIC) at which it started, less
// the sum until then. One writer.
struct RunningTime {
  static constexpr uint64_t kRunning = uint64_t{1} << 63;
  Counter word;

  // The sum at a moment. Any thread.
  uint64_t at(uint64_t now) const {
    // Relaxed: statistics order nothing.
    const uint64_t found = word.load(std::memory_order_relaxed);
    return found & kRunning ? now - (found & ~kRunning) : found;
  }
  void start(uint64_t now) { put(word, kRunning | (now - at(now))); }
  void stop(uint64_t now) { put(word, at(now)); }
  void add(uint64_t ns) { bump(word, ns); }
};

enum class StreamState : uint32_t { kUnused, kRunning, kFailed };

// Why a host thread waited for a device.
enum class WaitReason : uint32_t {
  kItem,  // the host read a value: item(), bool(t)
  kCopy,  // a blocking copy to the host
  kStreamSync,
  kEventSync,
  kDeviceSync,
  kOperator,   // an operator whose result shape depends on data
  kAllocator,  // the allocator waits for memory that it may release
  kExit,
  kUpload,     // a blocking copy from the host
  kGraph,      // before a capture
  kDealloc,    // before memory goes back to an allocator that is not ours
  kRawHandle,  // a handle for work that the queue does not see
  kCount
};

// Why a task did not go through its stream's queue, or not without a wait.
enum class Bypass : uint32_t {
  kSyncLaunchStream,  // a stream without a queue
  kLaunchBlocking,    // queued, and the caller waited for it
  kCapture,           // it became part of a graph
  kNested,            // it ran within the one task that is a graph's replay
  kCount
};

// What a launcher waits for.
enum class Hold : uint32_t {
  kEvent,    // work of another stream
  kBarrier,  // another stream of the graph being replayed
  kCopy,     // a copy that another stream was running
  kCount
};

// What kind of work a task is.
enum class Work : uint32_t {
  kKernel,
  kEvent,  // waits and time stamps
  kHostToDevice,
  kDeviceToHost,
  kOnDevice,
  kHost,  // a function of the host, in stream order
  kCount
};

struct StreamBlock {
  // Set once, before `state` leaves kUnused.
  std::atomic<uint32_t> state;  // StreamState
  int32_t device;
  int64_t stream_id;
  uint64_t capacity;
  Counter thread;  // the launcher's thread id; 0: none

  // Copies, of which the engine never reads one: whoever can write the file
  // cannot move its queues.
  alignas(kCacheLine) Counter tail;  // tasks that callers have begun to queue

  // Written by the launcher.
  alignas(kCacheLine) Counter retired;  // tasks done, failed or dropped
  Counter failed;
  Counter dropped;          // not run because an earlier task failed
  Counter parks;            // gaps in which the launcher went to sleep
  Counter spins;            // gaps that ended before it slept
  Counter last_retired_ns;  // CLOCK_MONOTONIC, sampled
  Counter starved_ns;       // of each gap the first millisecond
  alignas(kCacheLine) RunningTime alive;  // since the launcher started
  RunningTime idle;                     // part of `alive`: the queue was empty
  RunningTime held[int(Hold::kCount)];  // part of `alive`: waiting, by Hold
  Counter held_by;     // that stream: 1 + id + (device << 32); 0: none
  Counter held_until;  // how many tasks that stream has to retire
  Counter woken_ns;    // CLOCK_MONOTONIC, when the launcher was last woken
  // CLOCK_MONOTONIC, when the newest timed task that was taken was queued.
  Counter head_queued_ns;
  Counter errors[kErrorCodes];  // errors that made the stream fail, by npu_code
  Counter capturing;  // 1 while tasks go to a graph; the capturing thread's
  alignas(kCacheLine) Log2Histogram<kDepthBuckets> depth;  // tasks

  // Added to by any thread.
  alignas(kCacheLine) Counter full_waits;  // times a caller met a full ring
  Counter full_wait_ns;
  Counter full_waiting;       // like DeviceBlock::waiting
  Counter full_waiting_from;  // like DeviceBlock::waiting_from
  Counter bypassed[int(Bypass::kCount)];
  Counter deferred_bytes;  // freed, but in use elsewhere; moves both ways
  // Host waits for everything that the stream had been given.
  Counter drains[int(WaitReason::kCount)];
  Counter drain_ns[int(WaitReason::kCount)];
  TimeHistogram call_ns;    // from an operator's entry until its task is queued
  TimeHistogram launch_ns;  // of that, from begin() to commit()

  // Written by the launcher.
  alignas(kCacheLine) TimeHistogram queued_ns;  // claimed to taken
  TimeHistogram latency_ns;                     // claimed to retired
  TimeHistogram run_ns[int(Work::kCount)];      // taken to retired
  Exemplars queued_exemplars;
  Exemplars latency_exemplars;
  alignas(kCacheLine) RecentTask recent[kRecentTasks];
  FailureNote failure;  // the newest; of a stream whose state is kFailed

  // The task at `position` begins, or is dropped. Only the launcher.
  void begin(uint64_t position, const char* name, uint64_t site) {
    // Relaxed throughout: see RecentTask.
    RecentTask& entry = recent[position % kRecentTasks];
    put(entry.name, reinterpret_cast<uint64_t>(name));
    put(entry.site, site | position << RecentTask::kTaskShift);
  }

  // The task's name; null: it has not begun, or a later one has its entry.
  const char* running(uint64_t position) const {
    // Relaxed throughout: see RecentTask.
    const RecentTask& entry = recent[position % kRecentTasks];
    const uint64_t name = entry.name.load(std::memory_order_relaxed);
    const uint64_t site = entry.site.load(std::memory_order_relaxed);
    constexpr int kShift = RecentTask::kTaskShift;
    const bool same = site >> kShift == position << kShift >> kShift;
    return same ? reinterpret_cast<const char*>(name) : nullptr;
  }
};

// A wait that is counted, and counted as open while it lasts. Any thread.
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

// Between which memories a copy went.
enum class CopyKind : uint32_t { kHostToDevice, kDeviceToHost, kOnDevice };
inline constexpr int kCopyKinds = 3;

// Why a capture made no graph, or refused a call.
enum class CaptureFailure : uint32_t {
  kSync,       // the host would have waited for captured work
  kThread,     // work from another thread
  kJoin,       // streams not joined as a capture needs it
  kRule,       // anything else that is not allowed
  kAbandoned,  // reset before its end
  kCount
};

// What a race sanitizer may report.
inline constexpr int kReportKinds = 8;

// Added to by any thread, unless a comment says otherwise.
struct DeviceBlock {
  // Indexed by WaitReason.
  Counter waits[int(WaitReason::kCount)];
  Counter wait_ns[int(WaitReason::kCount)];
  // Of waits that have not ended: how many, and the sum of the moments
  // (CLOCK_MONOTONIC) at which they began. Both move both ways.
  Counter waiting[int(WaitReason::kCount)];
  Counter waiting_from[int(WaitReason::kCount)];
  // Written under the allocator's lock.
  Counter memory_total;
  Counter allocated;       // bytes; moves both ways
  Counter allocated_peak;  // bytes
  Counter reserved;        // bytes; moves both ways
  Counter allocations;
  Counter alloc_retries;
  Counter ooms;

  Counter copy_bytes[kCopyKinds][2];  // [CopyKind][pageable, pinned]
  // Waits in a region that forbids them: [warned, refused][WaitReason].
  Counter sync_violations[2][int(WaitReason::kCount)];
  // In this order: race_ww, race_rw, alloc_reuse, missing_record_stream,
  // host_read, use_after_free, unordered_raw_launch, overwritten_result.
  Counter sanitizer_reports[kReportKinds];
  Counter sanitizer_bytes;  // moves both ways
  Counter sanitizer_ns;
  Counter graph_captures;
  Counter graph_replays;
  Counter graph_capture_failures[int(CaptureFailure::kCount)];
  Counter events_created;
  Counter events_recorded;
  Counter events_pending;  // not yet seen done; moves both ways
};

// A host thread that waits now. `owner` is times used << 32 | thread id.
// Instead of a thread id it may have 0 (free) or kBeingWritten (not to be
// read). A reader that finds the same owner before and after the other words
// has read that thread's.
struct OpenWait {
  static constexpr uint64_t kBeingWritten = 0xffffffff;
  // A reason beside those of WaitReason: the thread waits for room in a queue.
  static constexpr uint64_t kFullQueue = uint64_t(WaitReason::kCount);

  alignas(kCacheLine) Counter owner;
  Counter since;   // CLOCK_MONOTONIC
  Counter reason;  // WaitReason, or kFullQueue
  Counter site;    // SiteEntry; 0: not known
  Counter stream;  // id + (device << 32)
  Counter until;   // the stream's tasks below this number
};

// The process as a whole. Added to by any thread.
struct ProcessBlock {
  Counter sanitizer_enabled;  // 0 or 1
  Counter trace_dropped;      // events lost to a full trace ring
  Counter async_waiters;      // moves both ways
  TimeHistogram async_wakeup_ns;
  Counter sites;  // only entries below this number may be known
  // Streams without a block here, because all were taken or there was no
  // memory.
  Counter unpublished_streams;
  Counter optimizer_steps;  // steps of torch.optim's optimizers
};

// The only words of the segment that another process may write: what an
// administrator asks of this one. Launchers look once per sampled task.
struct ControlBlock {
  Counter launch_blocking;  // 0: nothing asked; 1: off; 2: on
};

// The text for a RecentTask::name. Written once, `key` last. The counts are of
// sampled tasks; any launcher adds to them.
struct NameEntry {
  Counter key;  // the address of the name in the process; 0: free
  Counter tasks;
  Counter ns;  // taken to retired
  char text[56];
};

// The line of a call site, "train.py:12 in step": entry `id`. Ids from
// kMaxSites on have no entry. Written once, `known` last. The counts are of
// host waits at that line, and of sampled tasks that it has launched; any
// thread adds to them.
struct SiteEntry {
  std::atomic<uint32_t> known;
  std::atomic<uint32_t> reason;  // OpenWait::reason of the newest wait
  Counter waits;
  Counter wait_ns;
  Counter tasks;
  Counter ns;  // as NameEntry::ns
  char text[152];
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
  uint64_t pid_namespace;  // inode of /proc/self/ns/pid, for which `pid` holds
  // From the environment when the segment was made; "" when unset.
  char rank[16];
  char local_rank[16];
  char world_size[16];
  char job_id[64];
  char pod[64];
  char package[16];  // its version
  char torch[24];
  char command[512];     // words that end with 0, as in /proc/<pid>/cmdline
  uint64_t stack_start;  // field 28 of /proc/<pid>/stat, against exec()
};

struct Segment {
  SegmentHeader header;
  alignas(kCacheLine) ProcessBlock process;
  alignas(kCacheLine) ControlBlock control;
  alignas(kCacheLine) OpenWait waits[kMaxOpenWaits];
  alignas(kCacheLine) DeviceBlock devices[kMaxDeviceBlocks];
  alignas(kCacheLine) StreamBlock streams[kMaxStreamBlocks];
  alignas(kCacheLine) NameEntry names[kMaxNames];
  alignas(kCacheLine) SiteEntry sites[kMaxSites];
};

// Where the log of collectives is in the file of a process that is in a group.
// A part of a file can be mapped from the beginning of a page on, and pages
// have up to 64 KiB.
inline constexpr size_t kExtensionAt =
    (sizeof(Segment) + 0xffff) / 0x10000 * 0x10000;

}  // namespace npu
