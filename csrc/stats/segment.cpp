#include "csrc/stats/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <stdexcept>

#include "csrc/base/both_clocks.h"
#include "csrc/base/clock.h"
#include "csrc/base/env.h"
#include "csrc/base/file_memory.h"
#include "csrc/stats/own_folder.h"
#include "csrc/stats/owner.h"

namespace npu {
namespace {

OwnFile own_;  // without a path when it has been removed
// The offset of the extension, which begins at the next page after the segment.
constexpr size_t kExtensionAt = (sizeof(Segment) + 4095) / 4096 * 4096;
bool inherited_ = false;   // forked with it, and it has had no file since
std::mutex blocks_mutex_;  // guards handing out stream blocks
int stream_blocks_ = 0;    // handed out

// Reports once per segment why others will not find its figures.
void complain(const char* what, const std::string& why) {
  fprintf(stderr, "npu_dispatch: %s: %s\n", what, why.c_str());
}

void complain(const char* what, const std::string& path, int error) {
  complain(what, path + ": " + strerror(error));
}

// Lets the group read that NPU_DISPATCH_SEGMENT_GROUP names, if it does.
void share(int file, const std::string& directory) {
  std::string problem = open_to_group(file);
  if (problem.empty()) {
    const int folder =
        open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    problem = folder < 0 ? strerror(errno) : open_to_group(folder);
    close(folder);
  }
  if (!problem.empty())
    complain("only this user can see this process's statistics", problem);
}

// Takes the memory for everything but the stream blocks, and for the blocks
// handed out so far: threads write there without asking. Returns 0 or an errno.
int allocate_file(int file) {
  const size_t begin = offsetof(Segment, streams);
  const size_t end = offsetof(Segment, names);
  const size_t used = begin + size_t(stream_blocks_) * sizeof(StreamBlock);
  if (const int failed = allocate_pages(file, 0, used)) return failed;
  return allocate_pages(file, end, sizeof(Segment) - end);
}

// Writes the pages that are not all zeros: a hole in the file takes no memory.
bool write_pages(int file, const Segment* from) {
  constexpr size_t kPage = 4096;
  static const char zeros[kPage] = {};
  const char* bytes = reinterpret_cast<const char*>(from);
  for (size_t at = 0; at < sizeof(Segment); at += kPage) {
    const size_t n = std::min(kPage, sizeof(Segment) - at);
    if (memcmp(bytes + at, zeros, n) != 0 &&
        pwrite(file, bytes + at, n, off_t(at)) != ssize_t(n))
      return false;
  }
  return true;
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
  OwnFile own = make_own_file(directory, read_segment_owner);
  const int file = own.file;
  if (file < 0) {
    complain(kNoFile, directory + "/" + std::to_string(getpid()), errno);
    return nullptr;
  }
  // The memory is taken first: touching a page for the first time while
  // /dev/shm is full would kill the process.
  int failed = ftruncate(file, sizeof(Segment)) ? errno : allocate_file(file);
  if (!failed && at && !write_pages(file, at)) failed = errno;
  void* memory = nullptr;
  if (!failed) {
    memory = mmap(at, sizeof(Segment), PROT_READ | PROT_WRITE,
                  MAP_SHARED | (at ? MAP_FIXED : 0), file, 0);
    if (memory == MAP_FAILED) {
      failed = errno;
      memory = nullptr;
    }
  }
  if (memory) {
    share(file, directory);
    own_ = std::move(own);
    atexit(remove_segment);
  } else {
    complain(kNoFile, own.path, failed);
    remove_own_file(own);
    close(file);
  }
  return memory;
}

// Opens our file again; -1, with an errno in `failed`, where its name is no
// longer that of our file. It is opened by name: in a program that closes every
// descriptor it finds, the number of the one that we keep could be another
// file's.
int open_again(int& failed) {
  const int file = open(own_.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) {
    failed = errno;
    return -1;
  }
  struct stat info;
  failed = fstat(file, &info) ? errno : 0;
  if (!failed && info.st_ino != own_.number) failed = ENOENT;
  if (!failed) return file;
  close(file);
  return -1;
}

// Takes the memory for the block, where it is in a file. Returns 0 or an errno.
int allocate_block(const StreamBlock& block) {
  if (!own_.number) return 0;
  int failed = 0;
  const int file = open_again(failed);
  if (file < 0) return failed;
  const auto at = size_t(reinterpret_cast<const char*>(&block) -
                         reinterpret_cast<const char*>(&segment()));
  failed = allocate_pages(file, at, sizeof block);
  close(file);
  return failed;
}

std::atomic<void*> extension_{nullptr};  // made under blocks_mutex_

// Makes the file longer by the extension and maps that. Returns 0 or an errno.
int map_extension(size_t bytes, void*& memory) {
  if (!own_.number) return ENOENT;
  int failed = 0;
  const int file = open_again(failed);
  if (file < 0) return failed;
  if (ftruncate(file, off_t(kExtensionAt + bytes))) failed = errno;
  if (!failed) failed = allocate_pages(file, kExtensionAt, bytes);
  if (!failed) {
    void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED, file, off_t(kExtensionAt));
    if (mapped == MAP_FAILED)
      failed = errno;
    else
      memory = mapped;
  }
  close(file);
  return failed;
}

void* map_private(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw std::runtime_error("npu: no memory for statistics, " +
                             std::to_string(bytes) +
                             " bytes: " + strerror(errno));
  return memory;
}

void set(char* to, size_t bytes, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string value = env_string(name, "");
    if (value.empty()) continue;
    snprintf(to, bytes, "%s", value.c_str());
    return;
  }
}

const char *version_ = "", *torch_version_ = "";

void read_command(char* to, size_t bytes) {
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  if (read(file, to, bytes) < 0) to[0] = 0;
  close(file);
}

Segment* make(void* memory) {
  // Pages of zeros are valid counters, so only the header needs values. The
  // magic is written last, so that a reader never sees a half-written header.
  Segment* s = static_cast<Segment*>(memory);
  s->header.version = kLayoutVersion;
  s->header.header_bytes = offsetof(Segment, devices);
  s->header.device_block_bytes = sizeof(DeviceBlock);
  s->header.device_blocks = kMaxDeviceBlocks;
  s->header.stream_block_bytes = sizeof(StreamBlock);
  s->header.stream_blocks = kMaxStreamBlocks;
  s->header.pid = uint32_t(getpid());
  s->header.names = kMaxNames;
  s->header.process_start = process_start(getpid());
  s->header.pid_namespace = pid_namespace();
  SegmentHeader& h = s->header;
  set(h.rank, sizeof h.rank, {"RANK"});
  set(h.local_rank, sizeof h.local_rank, {"LOCAL_RANK"});
  set(h.world_size, sizeof h.world_size, {"WORLD_SIZE"});
  set(h.job_id, sizeof h.job_id, {"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"});
  set(h.pod, sizeof h.pod, {"POD_NAME"});
  snprintf(h.package, sizeof h.package, "%s", version_);
  snprintf(h.torch, sizeof h.torch, "%s", torch_version_);
  read_command(h.command, sizeof h.command - 1);
  const auto now = read_both(now_ns, unix_ns);
  h.monotonic_ns = now.outer;
  h.realtime_ns = now.inner;
  std::atomic_thread_fence(std::memory_order_release);
  memcpy(s->header.magic, kLayoutMagic, sizeof(kLayoutMagic));
  return s;
}

uint64_t key_of(const char* name) {
  return uint64_t(reinterpret_cast<uintptr_t>(name));
}

// The i-th place where a name is looked for.
uint64_t place_of(uint64_t key, int i) {
  return (((key >> 4) * 0x9e3779b97f4a7c15u >> 32) + uint64_t(i)) % kMaxNames;
}

std::atomic<Segment*> made_{nullptr};

Segment* current() {
  void* memory = map_file(nullptr);
  Segment* s = make(memory ? memory : map_private(sizeof(Segment)));
  made_.store(s, std::memory_order_release);
  pthread_atfork(nullptr, nullptr, detach_segment_after_fork);
  return s;
}

Segment* slot() {
  static Segment* const segment = current();
  return segment;
}

}  // namespace

void name_versions(const char* version, const char* torch_version) {
  version_ = version;
  torch_version_ = torch_version;
}

Segment& segment() { return *slot(); }

void count_optimizer_step() {
  // Acquire: pairs with the release in current().
  Segment* const s = made_.load(std::memory_order_acquire);
  // Relaxed: statistics order nothing.
  if (s) s->process.optimizer_steps.fetch_add(1, std::memory_order_relaxed);
}

const std::string& segment_path() {
  segment();
  return own_.path;
}

StreamBlock* claim_stream_block() {
  Segment& all = segment();
  const std::lock_guard lock(blocks_mutex_);
  static bool told = false;
  if (stream_blocks_ < kMaxStreamBlocks) {
    StreamBlock* const block = &all.streams[stream_blocks_];
    const int failed = allocate_block(*block);
    if (!failed) {
      ++stream_blocks_;
      return block;
    }
    if (!told)
      complain("other processes cannot see all streams' statistics", own_.path,
               failed);
    told = true;
  }
  // Relaxed: statistics order nothing.
  all.process.unpublished_streams.fetch_add(1, std::memory_order_relaxed);
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
  const int failed = map_extension(bytes, memory);
  if (failed && own_.number)
    complain("other processes cannot see this one's collectives", own_.path,
             failed);
  if (!memory) memory = map_private(bytes);
  fill(memory);
  extension_.store(memory, std::memory_order_release);
  return memory;
}

void publish_name(const char* name) {
  static std::mutex mutex;
  const uint64_t key = key_of(name);
  const std::lock_guard lock(mutex);
  for (int i = 0; i < kMaxNames; ++i) {
    NameEntry& entry = segment().names[place_of(key, i)];
    // Relaxed: only this function writes keys, under the mutex.
    const uint64_t found = entry.key.load(std::memory_order_relaxed);
    if (found == key) return;
    if (found) continue;
    snprintf(entry.text, sizeof entry.text, "%s", name);
    // Release: whoever sees the key sees the text.
    entry.key.store(key, std::memory_order_release);
    return;
  }
}

void count_name(const char* name, uint64_t ns) {
  const uint64_t key = key_of(name);
  for (int i = 0; i < kMaxNames; ++i) {
    NameEntry& entry = segment().names[place_of(key, i)];
    // Relaxed: the text is not read here.
    const uint64_t found = entry.key.load(std::memory_order_relaxed);
    if (!found) return;
    if (found != key) continue;
    entry.tasks.fetch_add(1, std::memory_order_relaxed);
    entry.ns.fetch_add(ns, std::memory_order_relaxed);
    return;
  }
}

void count_wait_at(uint32_t site, uint64_t reason, uint64_t ns) {
  if (site == 0 || site >= uint32_t(kMaxSites)) return;
  SiteEntry& entry = segment().sites[site];
  // Relaxed: statistics order nothing.
  entry.reason.store(uint32_t(reason), std::memory_order_relaxed);
  entry.waits.fetch_add(1, std::memory_order_relaxed);
  entry.wait_ns.fetch_add(ns, std::memory_order_relaxed);
}

void count_task_at(uint32_t site, uint64_t ns) {
  if (site == 0 || site >= uint32_t(kMaxSites)) return;
  SiteEntry& entry = segment().sites[site];
  // Relaxed: statistics order nothing.
  entry.tasks.fetch_add(1, std::memory_order_relaxed);
  entry.ns.fetch_add(ns, std::memory_order_relaxed);
}

void publish_site(uint32_t id, const char* text) {
  if (id >= uint32_t(kMaxSites)) return;
  SiteEntry& entry = segment().sites[id];
  // The end of a long line says more than its beginning.
  const size_t length = strlen(text), room = sizeof entry.text - 1;
  snprintf(entry.text, sizeof entry.text, "%s",
           text + (length > room ? length - room : 0));
  // Release: whoever sees it known sees the text.
  entry.known.store(1, std::memory_order_release);
  // Relaxed: a reader that sees the old number misses the newest site. Ids
  // come in rising order, under the caller's lock.
  segment().process.sites.store(id + 1, std::memory_order_relaxed);
}

const char* site_text(uint32_t id) {
  if (id == 0 || id >= uint32_t(kMaxSites)) return nullptr;
  const SiteEntry& entry = segment().sites[id];
  // Acquire: pairs with the release in publish_site().
  return entry.known.load(std::memory_order_acquire) ? entry.text : nullptr;
}

void remove_segment() {
  remove_own_file(own_);
  own_.path.clear();
}

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
  release_after_fork(own_);
  new (&blocks_mutex_) std::mutex;  // another thread may have held it
  inherited_ = true;
  // The parent's extension stays mapped but is not written to: the child's
  // first use makes one of its own. Relaxed: the child has one thread.
  extension_.store(nullptr, std::memory_order_relaxed);
  make(s);
}

void publish_segment_after_fork() {
  if (!inherited_) return;
  inherited_ = false;
  map_file(&segment());
}

}  // namespace npu
