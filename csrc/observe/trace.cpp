#include "csrc/observe/trace.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>

#include "csrc/base/clock.h"
#include "csrc/base/env.h"
#include "csrc/base/per_thread.h"
#include "csrc/stats/segment.h"
#include "csrc/stats/shared_file.h"

namespace npu {
namespace {

std::atomic<TraceFile*> file_{nullptr};
SharedFile own_;
bool keep_ = false;
std::mutex mutex_;  // guards opening, claiming rings and adding names
uint32_t rings_used_ = 0;

std::string directory() {
  const std::string asked = env_string("NPU_TRACE_DIR", "");
  keep_ = !asked.empty();
  if (keep_) return asked;
  return own_folder("npu_dispatch-trace").path;
}

bool read_trace_owner(int file, Owner& owner) {
  // Read as bytes: read() must not write into a TraceHeader's atomics.
  char header[sizeof(TraceHeader)];
  if (read(file, header, sizeof header) != sizeof header ||
      memcmp(header, kTraceMagic, sizeof kTraceMagic) != 0)
    return false;
  uint32_t version;
  memcpy(&version, header + offsetof(TraceHeader, version), sizeof version);
  memcpy(&owner.pid, header + offsetof(TraceHeader, pid), sizeof owner.pid);
  memcpy(&owner.process_start, header + offsetof(TraceHeader, process_start),
         sizeof owner.process_start);
  memcpy(&owner.pid_namespace, header + offsetof(TraceHeader, pid_namespace),
         sizeof owner.pid_namespace);
  return version == kTraceVersion;
}

// The magic goes last: a reader never sees a half-written header.
void fill(TraceHeader& header) {
  const SegmentHeader& segment_header = segment().header;
  header.version = kTraceVersion;
  header.pid = uint32_t(getpid());
  header.process_start = segment_header.process_start;
  header.pid_namespace = segment_header.pid_namespace;
  header.ns_per_tick = ns_per_tick();
  header.ticks = ticks();
  header.monotonic_ns = now_ns();
  header.realtime_ns = segment_header.realtime_ns +
                       (header.monotonic_ns - segment_header.monotonic_ns);
  header.rings = kTraceRings;
  header.records = kTraceRecords;
  header.rings_at = offsetof(TraceFile, rings);
  header.ring_bytes = sizeof(TraceRing);
  header.names_at = offsetof(TraceFile, names);
  header.name_bytes = kTraceNameBytes;
  header.wanted.store(keep_ || env_flag("NPU_TRACE"),
                      std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  memcpy(header.magic, kTraceMagic, sizeof kTraceMagic);
}

}  // namespace

void open_trace_file() {
  std::lock_guard lock(mutex_);
  if (!own_.path().empty()) return;
  const std::string in = directory();
  if (in.empty()) return;
  if (!keep_) remove_abandoned(in, read_trace_owner, kDeadTraces);
  SharedFile own;
  void* memory = nullptr;
  if (own.make(in, read_trace_owner, sizeof(TraceFile)) &&
      own.allocate(0, offsetof(TraceFile, rings)))
    memory = own.map(0, sizeof(TraceFile));
  if (!memory) return own.remove();
  own_ = own;
  static const int handles =
      pthread_atfork(nullptr, nullptr, [] { own_.release_after_fork(); });
  (void)handles;
  auto* const file = static_cast<TraceFile*>(memory);
  fill(file->header);
  // Release: launchers that see the file find the header filled.
  file_.store(file, std::memory_order_release);
}

void remove_trace_file() {
  calibrate_trace();
  std::lock_guard lock(mutex_);
  if (!keep_) own_.remove();
}

bool trace_wanted() {
  TraceFile* const file = file_.load(std::memory_order_acquire);
  return file && file->header.wanted.load(std::memory_order_relaxed);
}

void calibrate_trace() {
  std::lock_guard lock(mutex_);
  TraceFile* const file = file_.load(std::memory_order_relaxed);
  if (!file) return;
  file->header.later_ticks.store(ticks(), std::memory_order_relaxed);
  file->header.later_ns.store(now_ns(), std::memory_order_relaxed);
}

TraceRing* claim_trace_ring(int device, int64_t stream) {
  std::lock_guard lock(mutex_);
  TraceFile* const file = file_.load(std::memory_order_relaxed);
  if (!file || rings_used_ == kTraceRings) return nullptr;
  TraceRing& ring = file->rings[rings_used_];
  const auto at =
      size_t(reinterpret_cast<char*>(&ring) - reinterpret_cast<char*>(file));
  if (!own_.allocate(at, sizeof(TraceRing))) return nullptr;
  ++rings_used_;
  ring.device = device;
  ring.stream = stream;
  ring.used.store(1, std::memory_order_release);
  return &ring;
}

uint32_t trace_name(const char* name) {
  // By address: names live as long as the process.
  struct Known {
    std::unordered_map<const char*, uint32_t> names;
  };
  try {
    Known& known = PerThread<Known>::get();
    const auto [entry, is_new] = known.names.try_emplace(name, kNoTraceName);
    if (is_new) entry->second = trace_text(name);
    return entry->second;
  } catch (const std::bad_alloc&) {  // the launcher goes on without the name
    return kNoTraceName;
  }
}

uint32_t trace_text(std::string_view text) {
  static auto& all = *new std::unordered_map<std::string, uint32_t>;
  std::lock_guard lock(mutex_);
  const auto [entry, added] = all.try_emplace(std::string(text), kNoTraceName);
  if (!added) return entry->second;
  TraceFile* const file = file_.load(std::memory_order_relaxed);
  const uint16_t length = uint16_t(std::min<size_t>(text.size(), 255));
  const uint32_t at =
      file ? file->header.names_used.load(std::memory_order_relaxed) : 0;
  if (!file || at + sizeof length + length > kTraceNameBytes) {
    all.erase(entry);  // bounded: there may be any number of texts
    return kNoTraceName;
  }
  memcpy(file->names + at, &length, sizeof length);
  memcpy(file->names + at + sizeof length, text.data(), length);
  // Release: a reader that sees the name's end finds its bytes.
  file->header.names_used.store(uint32_t(at + sizeof length + length),
                                std::memory_order_release);
  return entry->second = at;
}

void trace_mark(const TraceMark& mark) {
  if (!trace_wanted()) return;
  static std::mutex mutex;  // guards the ring, which allows one writer
  static TraceRing* ring = nullptr;
  std::lock_guard lock(mutex);
  if (!ring) {
    calibrate_trace();
    ring = claim_trace_ring(-1, -1);
    if (!ring) return;
  }
  TraceRecord record{};
  record.position = mark.range;
  record.submitted = record.started = record.ended = ticks();
  record.name = mark.name;
  record.depth = mark.domain;
  record.kind = mark.kind;
  record.line = kNoTraceName;
  record.other_device = int16_t(mark.device);
  record.other_stream = mark.where;
  add(*ring, record);
}

}  // namespace npu
