#include "csrc/stats/segment.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "csrc/base/clock.h"

namespace npu {
namespace {

std::string path_;
std::atomic<int> next_stream_block{0};

uint64_t process_start() {
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  // The command, field 2, may hold spaces; it ends at the last ')'.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return field.empty() ? 0 : strtoull(field.c_str(), nullptr, 10);
}

void* map_file() {
  const std::string directory =
      "/dev/shm/npu_dispatch-" + std::to_string(getuid());
  mkdir(directory.c_str(), 0700);
  struct stat info;
  if (lstat(directory.c_str(), &info) || !S_ISDIR(info.st_mode) ||
      info.st_uid != getuid())
    return nullptr;
  const std::string path = directory + "/" + std::to_string(getpid());
  unlink(path.c_str());  // a dead process of the same number
  const int file =
      open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  void* memory = nullptr;
  if (!ftruncate(file, sizeof(Segment))) {
    memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED,
                  file, 0);
    if (memory == MAP_FAILED) memory = nullptr;
  }
  close(file);
  if (memory) {
    path_ = path;
  } else {
    unlink(path.c_str());
  }
  return memory;
}

void* map_private() {
  void* memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("npu_dispatch: no memory for the statistics segment");
    abort();
  }
  return memory;
}

Segment* make(void* memory) {
  // Zero pages are valid counters; only the header needs values. The magic
  // goes last, so that a reader never sees a half-written header.
  Segment* s = static_cast<Segment*>(memory);
  timespec real;
  clock_gettime(CLOCK_REALTIME, &real);
  s->header.version = kLayoutVersion;
  s->header.header_bytes = offsetof(Segment, devices);
  s->header.device_block_bytes = sizeof(DeviceBlock);
  s->header.device_blocks = kMaxDeviceBlocks;
  s->header.stream_block_bytes = sizeof(StreamBlock);
  s->header.stream_blocks = kMaxStreamBlocks;
  s->header.pid = uint32_t(getpid());
  s->header.process_start = process_start();
  s->header.monotonic_ns = now_ns();
  s->header.realtime_ns =
      uint64_t(real.tv_sec) * 1'000'000'000u + uint64_t(real.tv_nsec);
  std::atomic_thread_fence(std::memory_order_release);
  memcpy(s->header.magic, kLayoutMagic, sizeof(kLayoutMagic));
  return s;
}

Segment* current() {
  void* memory = map_file();
  return make(memory ? memory : map_private());
}

Segment*& slot() {
  static Segment* segment = current();
  return segment;
}

}  // namespace

Segment& segment() { return *slot(); }

const std::string& segment_path() {
  segment();
  return path_;
}

StreamBlock* claim_stream_block() {
  const int index = next_stream_block.fetch_add(1, std::memory_order_relaxed);
  return index < kMaxStreamBlocks ? &segment().streams[index] : nullptr;
}

void remove_segment() {
  if (!path_.empty()) unlink(path_.c_str());
  path_.clear();
}

void detach_segment_after_fork() {
  // The parent's streams still point into its mapping; a private copy in the
  // same place keeps the child from writing into the parent's numbers.
  Segment* s = slot();
  mmap(s, sizeof(Segment), PROT_READ | PROT_WRITE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  path_.clear();
  make(s);
}

}  // namespace npu
