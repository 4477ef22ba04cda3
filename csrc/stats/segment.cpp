#include "csrc/stats/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/env.h"
#include "csrc/stats/owner.h"
#include "csrc/stats/shared_file.h"

namespace npu {
namespace {

SharedFile own_;
bool inherited_ = false;   // forked with it, and it has had no file since
std::mutex blocks_mutex_;  // guards handing out stream blocks
int stream_blocks_ = 0;    // handed out

// Reports once per segment why others will not find its figures.
void complain(const char* what, const std::string& why) {
  fprintf(stderr, "npu_dispatch: %s: %s\n", what, why.c_str());
}

// The parts of a segment where threads write without asking: all but the stream
// blocks that have not been handed out. Each is where it begins, and its bytes.
std::array<std::pair<size_t, size_t>, 2> parts_in_use() {
  const size_t streams = offsetof(Segment, streams);
  const size_t names = offsetof(Segment, names);
  return {{{0, streams + size_t(stream_blocks_) * sizeof(StreamBlock)},
           {names, sizeof(Segment) - names}}};
}

// A file with the memory for those parts, mapped; null, with an errno, where
// there can be none.
void* map_new(SharedFile& own, const std::string& directory) {
  if (!own.make(directory, read_segment_owner, sizeof(Segment))) return nullptr;
  for (const auto& [at, bytes] : parts_in_use())
    if (!own.allocate(at, bytes)) return nullptr;
  return own.map(0, sizeof(Segment));
}

// Makes and maps a new file in memory. `at`: a segment whose content the file
// takes over, and in whose place it is mapped in one step; null: a file of
// zeros, mapped anywhere. Returns null, and writes a line to stderr, where it
// fails.
void* map_file(Segment* at) {
  static const char* const kNoFile =
      "other processes cannot see this one's statistics";
  const OwnFolder folder = own_folder("npu_dispatch");
  const std::string& directory = folder.path;
  if (directory.empty()) {
    complain(kNoFile, folder.passed_over);
    return nullptr;
  }
  if (!folder.passed_over.empty())
    complain("statistics are not where readers look first",
             directory + " is used, since " + folder.passed_over);
  remove_abandoned(directory, read_segment_owner, kDeadSegments);
  SharedFile own;
  void* memory = map_new(own, directory);
  if (memory && at) {
    for (const auto& [from, bytes] : parts_in_use())
      memcpy(static_cast<char*>(memory) + from,
             reinterpret_cast<const char*>(at) + from, bytes);
    munmap(memory, sizeof(Segment));
    memory = own.map(0, sizeof(Segment), at);
  }
  if (!memory) {
    complain(kNoFile, directory + ": " + strerror(errno));
    own.remove();
    return nullptr;
  }
  for (const std::string& path : {own.path(), directory}) {
    const std::string problem = open_to_group(path);
    if (problem.empty()) continue;
    complain("only this user can see this process's statistics", problem);
    break;
  }
  own_ = own;
  atexit(remove_segment);
  return memory;
}

std::atomic<void*> extension_{nullptr};  // made under blocks_mutex_

void* map_private(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw std::runtime_error("npu: no memory for statistics, " +
                             std::to_string(bytes) +
                             " bytes: " + strerror(errno));
  return memory;
}

template <size_t N>
void set(char (&to)[N], const std::string& text) {
  snprintf(to, N, "%s", text.c_str());
}

const char *version_ = "", *torch_version_ = "";

void read_command(char* to, size_t bytes) {
  const OpenFile file(open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  if (read(file, to, bytes) < 0) to[0] = 0;
}

// The job as its launcher calls it. A plain torchrun calls each job "none";
// where its ranks meet tells it from others.
std::string job_id() {
  const std::string torchrun = env_string("TORCHELASTIC_RUN_ID", "");
  const std::string job = env_string("SLURM_JOB_ID", torchrun.c_str());
  if (job != "none") return job;
  return env_string("MASTER_ADDR", "") + ":" + env_string("MASTER_PORT", "");
}

// Writes the header of a segment of zeros, which are valid counters.
void fill(SegmentHeader& h) {
  h.version = kLayoutVersion;
  h.header_bytes = offsetof(Segment, devices);
  h.device_block_bytes = sizeof(DeviceBlock);
  h.device_blocks = kMaxDeviceBlocks;
  h.stream_block_bytes = sizeof(StreamBlock);
  h.stream_blocks = kMaxStreamBlocks;
  h.pid = uint32_t(getpid());
  h.names = kMaxNames;
  h.process_start = process_start(getpid());
  h.pid_namespace = pid_namespace();
  h.stack_start = stack_start(getpid());
  set(h.rank, env_string("RANK", ""));
  set(h.local_rank, env_string("LOCAL_RANK", ""));
  set(h.world_size, env_string("WORLD_SIZE", ""));
  set(h.job_id, job_id());
  set(h.pod, env_string("POD_NAME", ""));
  set(h.package, version_);
  set(h.torch, torch_version_);
  read_command(h.command, sizeof h.command - 1);
  const auto now = read_both(now_ns, unix_ns);
  h.monotonic_ns = now.outer;
  h.realtime_ns = now.inner;
  // Release: the magic comes last, so no reader sees a half-written header.
  std::atomic_thread_fence(std::memory_order_release);
  memcpy(h.magic, kLayoutMagic, sizeof kLayoutMagic);
}

// The entry of a name, or the free one that it would take; null: all are taken.
NameEntry* entry_of(const char* name) {
  const auto key = uint64_t(reinterpret_cast<uintptr_t>(name));
  const uint64_t first = (key >> 4) * 0x9e3779b97f4a7c15u >> 32;
  for (uint64_t i = 0; i < kMaxNames; ++i) {
    NameEntry& entry = segment().names[(first + i) % kMaxNames];
    // Relaxed: the text is not read here.
    const uint64_t found = entry.key.load(std::memory_order_relaxed);
    if (!found || found == key) return &entry;
  }
  return nullptr;
}

// The entry of a call site; null where it has none.
SiteEntry* entry_of(uint32_t site) {
  return site && site < uint32_t(kMaxSites) ? &segment().sites[site] : nullptr;
}

void add(Counter& sum, uint64_t by) {
  // Relaxed: statistics order nothing.
  sum.fetch_add(by, std::memory_order_relaxed);
}

constexpr uint64_t kThread = 0xffffffff;  // bits of OpenWait::owner

std::atomic<Segment*> made_{nullptr};

Segment& make_segment() {
  void* const file = map_file(nullptr);
  auto* const s =
      static_cast<Segment*>(file ? file : map_private(sizeof(Segment)));
  fill(s->header);
  // Release: whoever sees the segment sees its header.
  made_.store(s, std::memory_order_release);
  pthread_atfork(nullptr, nullptr, detach_segment_after_fork);
  return *s;
}

}  // namespace

bool read_segment_owner(int file, Owner& owner) {
  SegmentHeader header;
  if (read(file, &header, sizeof header) != sizeof header ||
      memcmp(header.magic, kLayoutMagic, sizeof kLayoutMagic) != 0 ||
      header.version != kLayoutVersion)
    return false;
  owner = {header.pid, header.process_start, header.pid_namespace};
  return true;
}

void name_versions(const char* version, const char* torch_version) {
  version_ = version;
  torch_version_ = torch_version;
}

Segment& segment() {
  static Segment& made = make_segment();
  return made;
}

const std::string& segment_path() {
  segment();
  return own_.path();
}

StreamBlock* claim_stream_block() {
  Segment& all = segment();
  const std::lock_guard lock(blocks_mutex_);
  if (std::exchange(inherited_, false)) map_file(&all);
  static bool told = false;
  if (stream_blocks_ < kMaxStreamBlocks) {
    const size_t at = offsetof(Segment, streams) +
                      size_t(stream_blocks_) * sizeof(StreamBlock);
    if (!own_.is_made() || own_.allocate(at, sizeof(StreamBlock)))
      return &all.streams[stream_blocks_++];
    if (!told)
      complain("other processes cannot see all streams' statistics",
               own_.path() + ": " + strerror(errno));
    told = true;
  }
  add(all.process.unpublished_streams, 1);
  return nullptr;
}

void* segment_extension(size_t bytes, void (*fill)(void*)) {
  // Acquire: pairs with the release below; whoever sees the extension sees its
  // first values.
  void* memory = extension_.load(std::memory_order_acquire);
  if (memory) return memory;
  segment();
  const std::lock_guard lock(blocks_mutex_);
  // Relaxed: written under the mutex.
  memory = extension_.load(std::memory_order_relaxed);
  if (memory) return memory;
  if (own_.is_made()) {
    if (own_.allocate(kExtensionAt, bytes))
      memory = own_.map(kExtensionAt, bytes);
    if (!memory)
      complain("other processes cannot see this one's collectives",
               own_.path() + ": " + strerror(errno));
  }
  if (!memory) memory = map_private(bytes);
  fill(memory);
  extension_.store(memory, std::memory_order_release);
  return memory;
}

void publish_name(const char* name) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  NameEntry* const entry = entry_of(name);
  // Relaxed: only this function writes keys, under the mutex.
  if (!entry || entry->key.load(std::memory_order_relaxed)) return;
  snprintf(entry->text, sizeof entry->text, "%s", name);
  // Release: whoever sees the key sees the text.
  entry->key.store(uint64_t(reinterpret_cast<uintptr_t>(name)),
                   std::memory_order_release);
}

void count_name(const char* name, uint64_t ns) {
  NameEntry* const entry = entry_of(name);
  // Relaxed: as in entry_of().
  if (!entry || !entry->key.load(std::memory_order_relaxed)) return;
  add(entry->tasks, 1);
  add(entry->ns, ns);
}

void count_wait_at(uint32_t site, uint64_t reason, uint64_t ns) {
  SiteEntry* const entry = entry_of(site);
  if (!entry) return;
  // Relaxed: statistics order nothing.
  entry->reason.store(uint32_t(reason), std::memory_order_relaxed);
  add(entry->waits, 1);
  add(entry->wait_ns, ns);
}

void count_task_at(uint32_t site, uint64_t ns) {
  SiteEntry* const entry = entry_of(site);
  if (!entry) return;
  add(entry->tasks, 1);
  add(entry->ns, ns);
}

void publish_site(uint32_t id, const char* text) {
  SiteEntry* const entry = entry_of(id);
  if (!entry) return;
  // The end of a long line says more than its beginning.
  const size_t length = strlen(text), room = sizeof entry->text - 1;
  snprintf(entry->text, sizeof entry->text, "%s",
           text + (length > room ? length - room : 0));
  // Release: whoever sees it known sees the text.
  entry->known.store(1, std::memory_order_release);
  // A reader that sees the old number misses the newest site. Ids come in
  // rising order, under the caller's lock.
  put(segment().process.sites, id + 1);
}

const char* site_text(uint32_t id) {
  const SiteEntry* const entry = entry_of(id);
  // Acquire: pairs with the release in publish_site().
  return entry && entry->known.load(std::memory_order_acquire) ? entry->text
                                                               : nullptr;
}

ListedWait::ListedWait(uint64_t reason, uint32_t site, int device,
                       int64_t stream, uint64_t until, uint64_t now)
    : place_(nullptr) {
  constexpr uint64_t kOneUse = uint64_t{1} << 32;
  // One system call per thread. In a forked child this is still the parent's
  // number; it is unique there, too.
  thread_local const auto thread = uint64_t(gettid());
  for (uint64_t i = 0; i < kMaxOpenWaits && !place_; ++i) {
    // Most threads find the first place free, since threads have consecutive
    // numbers.
    OpenWait& place = segment().waits[(thread + i) % kMaxOpenWaits];
    const uint64_t found = place.owner.load(std::memory_order_relaxed);
    if (found & kThread) continue;
    const uint64_t use = found + kOneUse;
    const uint64_t writing = use | OpenWait::kBeingWritten;
    if (!claim(place.owner, found, writing)) continue;
    place_ = &place;
    write_guarded(place.owner, writing, use | thread, [&] {
      put(place.since, now);
      put(place.reason, reason);
      put(place.site, site);
      put(place.stream, uint64_t(device) << 32 | uint64_t(stream));
      put(place.until, until);
    });
  }
}

void ListedWait::end() {
  if (!place_) return;
  const uint64_t owner = place_->owner.load(std::memory_order_relaxed);
  // Release: pairs with the acquire of the next thread that takes the place.
  place_->owner.store(owner & ~kThread, std::memory_order_release);
  place_ = nullptr;
}

void remove_segment() { own_.remove(); }

void detach_segment_after_fork() {
  Segment* s = made_.load(std::memory_order_acquire);
  if (!s || s->header.pid == uint32_t(getpid())) return;
  // The parent's streams still point into its mapping; a private copy in the
  // same place keeps the child from writing into the parent's numbers.
  void* memory = mmap(s, sizeof(Segment), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (memory == MAP_FAILED) {
    perror("npu_dispatch: no memory for the statistics segment");
    abort();
  }
  own_.release_after_fork();
  new (&blocks_mutex_) std::mutex;  // another thread may have held it
  inherited_ = true;
  // The parent's extension stays mapped but is not written to: the child's
  // first use makes one of its own. Relaxed: the child has one thread.
  extension_.store(nullptr, std::memory_order_relaxed);
  fill(s->header);
}

}  // namespace npu
