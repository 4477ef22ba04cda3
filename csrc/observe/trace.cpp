#include "csrc/observe/trace.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/env.h"
#include "csrc/base/file_memory.h"
#include "csrc/stats/own_folder.h"
#include "csrc/stats/owner.h"
#include "csrc/stats/segment.h"

namespace npu {
namespace {

std::atomic<TraceFile*> file_{nullptr};
OwnFile own_;  // without a path when it has been removed
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

TraceFile* map_file(int fd) {
  if (ftruncate(fd, sizeof(TraceFile)) ||
      allocate_pages(fd, 0, offsetof(TraceFile, rings)))
    return nullptr;
  void* const memory = mmap(nullptr, sizeof(TraceFile), PROT_READ | PROT_WRITE,
                            MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<TraceFile*>(memory);
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
  if (!own_.path.empty()) return;
  const std::string in = directory();
  if (in.empty()) return;
  if (!keep_) remove_abandoned(in, read_trace_owner, kDeadTraces);
  OwnFile own = make_own_file(in, read_trace_owner);
  if (own.file < 0) return;
  TraceFile* const file = map_file(own.file);
  if (!file) {
    remove_own_file(own);
    close(own.file);
    return;
  }
  own_ = std::move(own);
  static const int handles =
      pthread_atfork(nullptr, nullptr, [] { release_after_fork(own_); });
  (void)handles;
  fill(file->header);
  // Release: launchers that see the file find the header filled.
  file_.store(file, std::memory_order_release);
}

void remove_trace_file() {
  calibrate_trace();
  std::lock_guard lock(mutex_);
  if (!keep_) remove_own_file(own_);
  own_.path.clear();
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
  if (!file || rings_used_ == kTraceRings || own_.path.empty()) return nullptr;
  TraceRing& ring = file->rings[rings_used_];
  // The memory is taken now, since writing to a page that has none raises
  // SIGBUS.
  const int fd = open(own_.path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  const auto at =
      size_t(reinterpret_cast<char*>(&ring) - reinterpret_cast<char*>(file));
  const int failed = allocate_pages(fd, at, sizeof(TraceRing));
  close(fd);
  if (failed) return nullptr;
  ++rings_used_;
  ring.device = device;
  ring.stream = stream;
  ring.used.store(1, std::memory_order_release);
  return &ring;
}

uint32_t trace_name(const char* name) {
  // By address: names live as long as the process.
  thread_local std::unordered_map<const char*, uint32_t> known;
  try {
    const auto [entry, is_new] = known.try_emplace(name, kNoTraceName);
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

}  // namespace npu
