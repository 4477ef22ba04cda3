// What a process keeps of its last tasks while somebody traces it: a ring of
// records per stream, in a file that the tracing process maps.
//
// It is off until `wanted` is set, by that process, NPU_TRACE or NPU_TRACE_DIR.
// A launcher looks at `wanted` once per sampled task, so tracing may begin and
// end some 34 tasks late. npu_dispatch/observe/trace/trace_file.py mirrors this
// layout; any change of it raises kTraceVersion.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "csrc/base/align.h"

namespace npu {

inline constexpr uint32_t kTraceVersion = 5;
inline constexpr char kTraceMagic[8] = {'N', 'P', 'U', 'T', 'R', 'A', 'C', 'E'};
inline constexpr uint32_t kTraceRings = 64;
inline constexpr uint64_t kTraceRecords = uint64_t{1} << 16;
inline constexpr uint32_t kTraceNameBytes = 1 << 18;

enum class TraceOutcome : uint8_t { kDone, kFailed, kDropped };

// Values of a record's kind; one below kMarkBegin is a TaskKind. A mark is a
// moment, at the begin or the end of a range or by itself, in the ring of
// device -1: `position` is the range's number, all three times are the moment,
// `depth` is the domain's name, and other_device and other_stream say where: a
// stream, or -1 and a thread.
inline constexpr uint8_t kMarkBegin = 16, kMarkEnd = 17, kMarkPoint = 18;

// Times are ticks; the header says how long a tick is.
struct alignas(kCacheLine) TraceRecord {
  uint64_t position;   // in its stream
  uint64_t submitted;  // the claim
  uint64_t started;
  uint64_t ended;
  uint64_t other_number;  // kWait: the number of the other stream, else 0
  int64_t other_stream;
  uint32_t name;   // offset in the name table
  uint32_t depth;  // tasks unfinished when this one ended, itself included
  uint32_t line;   // as name: of the program that launched it; or kNoTraceName
  int16_t other_device;
  uint8_t kind;
  uint8_t outcome;
};
static_assert(sizeof(TraceRecord) == kCacheLine);

struct TraceRing {
  std::atomic<uint32_t> used;  // set once, after device and stream
  int32_t device;
  int64_t stream;
  // Records written so far; number n is in slot n % kTraceRecords. Only the
  // launcher writes. A reader copies and then looks again: a record that is
  // more than kTraceRecords - 1 back may have been overwritten.
  std::atomic<uint64_t> written;
  // Up to which record a following reader has read, written by that reader. 0:
  // nobody follows, and overwriting old records loses nothing.
  std::atomic<uint64_t> taken;
  alignas(kCacheLine) TraceRecord records[kTraceRecords];
};

struct TraceHeader {
  char magic[8];
  uint32_t version;
  uint32_t pid;
  uint64_t process_start;
  uint64_t ticks;  // read together with the next two
  uint64_t monotonic_ns;
  uint64_t realtime_ns;
  double ns_per_tick;
  uint32_t rings;
  uint32_t records;
  uint64_t rings_at;  // offset of the first ring
  uint64_t ring_bytes;
  uint32_t names_at;  // offset of the name table
  uint32_t name_bytes;
  // Nonzero: record. Set and cleared by the process that traces.
  std::atomic<uint32_t> wanted;
  std::atomic<uint32_t> names_used;  // bytes
  // Both clocks again, read when tracing last began or ended. They give the
  // rate of the ticks over all that time, where ns_per_tick was measured within
  // a millisecond.
  std::atomic<uint64_t> later_ticks;
  std::atomic<uint64_t> later_ns;
  uint64_t pid_namespace;  // the one that `pid` is of, as in SegmentHeader
};

// Each name is two bytes of length, then its bytes. Names are never removed.
struct TraceFile {
  TraceHeader header;
  alignas(kCacheLine) char names[kTraceNameBytes];
  alignas(4096) TraceRing rings[kTraceRings];
};

// Makes this process's file, in NPU_TRACE_DIR or in
// /dev/shm/npu_dispatch-trace-<uid>/, if that has not been done. In the latter
// folder it also renames the files that killed processes left, and keeps the
// newest kDeadTraces of them. Pages that nobody traces into take no memory.
// Without a file there is no tracing.
void open_trace_file();
inline constexpr size_t kDeadTraces = 2;  // up to 256 MB each
// Removes it, unless NPU_TRACE_DIR asked for it. Called at exit.
void remove_trace_file();

bool trace_wanted();

// Notes both clocks in the header.
void calibrate_trace();

// A ring for a stream; null when there is none or no memory for it.
TraceRing* claim_trace_ring(int device, int64_t stream);

// The offset of any text; kNoTraceName when the table is full. Any thread.
inline constexpr uint32_t kNoTraceName = UINT32_MAX;
uint32_t trace_text(std::string_view text);

// The offset of a name that lives as long as the process. Launchers only.
uint32_t trace_name(const char* name);

// Called only by the ring's one writer. False when it has overwritten a record
// that a following reader had not yet read.
inline bool add(TraceRing& ring, const TraceRecord& record) {
  // Relaxed: only this thread writes the counter.
  const uint64_t n = ring.written.load(std::memory_order_relaxed);
  ring.records[n % kTraceRecords] = record;
  // Release: a reader that sees n + 1 finds the record.
  ring.written.store(n + 1, std::memory_order_release);
  // Relaxed: an old value only counts one record more or less as lost.
  const uint64_t taken = ring.taken.load(std::memory_order_relaxed);
  return !taken || n - taken < kTraceRecords;
}

// A range marker: a moment of a thread or of a stream.
struct TraceMark {
  uint64_t range;         // its number, the same at both ends
  uint32_t name, domain;  // trace_text()
  uint8_t kind;           // kMarkBegin, kMarkEnd, kMarkPoint
  int32_t device;         // -1: the host
  int64_t where;          // stream, or thread
};

// Notes the mark at this moment. Does nothing when nobody traces. Any thread.
void trace_mark(const TraceMark& mark);

}  // namespace npu
