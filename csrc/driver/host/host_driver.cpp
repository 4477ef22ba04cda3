#include "csrc/driver/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "csrc/base/align.h"
#include "csrc/base/env.h"
#include "csrc/driver/host/host_memory.h"

namespace npu {
namespace {

// ASCEND_RT_VISIBLE_DEVICES lists ascending indices. Reading stops at the first
// bad item, and a wrong order means no device at all.
int visible_devices(int installed) {
  const std::string list = env_string("ASCEND_RT_VISIBLE_DEVICES", "");
  if (list.empty()) return installed;
  int count = 0, last = -1;
  const char* at = list.c_str();
  while (*at) {
    char* end;
    const long index = strtol(at, &end, 10);
    if (end == at || index < 0 || index >= installed) break;
    if (index <= last) return 0;
    last = int(index);
    ++count;
    if (*end != ',') break;
    at = end + 1;
  }
  return count;
}

// How many devices the machine has; a process may see only some of them. By
// default there is one for each rank on this machine (LOCAL_WORLD_SIZE),
// because programs call set_device(LOCAL_RANK).
int installed_devices() {
  static const int count = int(
      env_int("NPU_DISPATCH_DEVICES",
              env_int("LOCAL_WORLD_SIZE", 1, 1, kMaxDevices), 0, kMaxDevices));
  return count;
}

int device_count() {
  static const int count = visible_devices(installed_devices());
  return count;
}

uint64_t memory_total(int device) {
  const uint64_t fallback = device_memory(host_memory(), installed_devices());
  const uint64_t all = env_bytes("NPU_DISPATCH_MEMORY", fallback);
  const std::string own = "NPU_DISPATCH_MEMORY_" + std::to_string(device);
  return env_bytes(own.c_str(), all);
}

void* segment_alloc(int, size_t bytes) {
  void* segment = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (segment == MAP_FAILED) return nullptr;
  madvise(segment, bytes, MADV_HUGEPAGE);
  return segment;
}

void segment_free(int, void* segment, size_t bytes) { munmap(segment, bytes); }

// The size of the whole pages that a mapping of `bytes` takes.
size_t page_round(size_t bytes) {
  return round_up(bytes, size_t(sysconf(_SC_PAGESIZE)));
}

// Nobody may make the file shorter: an access behind its end would kill the
// process that maps it.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool write_all(int fd, const char* from, size_t bytes, size_t at) {
  while (bytes) {
    const ssize_t n = pwrite(fd, from, bytes, off_t(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    at += size_t(n);
    bytes -= size_t(n);
  }
  return true;
}

// Pages of zeros are not written: a hole in a file reads as zeros and takes no
// memory.
bool is_zero(const char* from, size_t bytes) {
  return !from[0] && !memcmp(from, from + 1, bytes - 1);
}

// Moves the segment's pages to a file without a name, which leaves nothing
// behind. It does so piece by piece, so that it takes little more memory
// meanwhile. Each piece of the file is mapped where the piece that it copies
// was, because queued tasks, graphs and other libraries know the address.
int segment_share(int, void* segment, size_t bytes) {
  constexpr size_t kPiece = size_t{2} << 20;
  const auto page = size_t(sysconf(_SC_PAGESIZE));
  const size_t all = page_round(bytes);
  const int fd = memfd_create("npu_segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  bool done = !ftruncate(fd, off_t(all)) && !fcntl(fd, F_ADD_SEALS, kSeals);
  for (size_t at = 0; done && at < all; at += kPiece) {
    const size_t size = all - at < kPiece ? all - at : kPiece;
    char* const piece = static_cast<char*>(segment) + at;
    for (size_t p = 0; done && p < size; p += page)
      done = is_zero(piece + p, page) || write_all(fd, piece + p, page, at + p);
    done = done && mmap(piece, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
                        off_t(at)) != MAP_FAILED;
  }
  if (done) return fd;
  const int why = errno;
  close(fd);
  errno = why;
  return -1;
}

void* segment_open(int, int handle, size_t bytes) {
  struct stat info;
  if (fstat(handle, &info)) return nullptr;
  const int seals = fcntl(handle, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) ||
      size_t(info.st_size) < page_round(bytes)) {
    errno = EINVAL;
    return nullptr;
  }
  void* segment = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_NORESERVE, handle, 0);
  return segment == MAP_FAILED ? nullptr : segment;
}

// The launching thread is the queue, so there is nothing to create.
npu_queue queue_create(int, int, const npu_reports*) {
  return reinterpret_cast<npu_queue>(1);
}
void queue_destroy(npu_queue) {}

int launch(npu_queue, const npu_kernel* kernel, const uint64_t* words,
           npu_failure* failure) {
  return kernel->run(kernel, words, failure);
}

}  // namespace

const npu_driver& host_driver() {
  static const npu_driver table = {
      .size = sizeof(npu_driver),
      .abi = NPU_DRIVER_ABI,
      .name = "host",
      .device_count = device_count,
      .memory_total = memory_total,
      .segment_alloc = segment_alloc,
      .segment_free = segment_free,
      .queue_create = queue_create,
      .queue_destroy = queue_destroy,
      .launch = launch,
      .submit = nullptr,
      .queue_reset = nullptr,
      .segment_share = segment_share,
      .segment_open = segment_open,
      .task_times = nullptr,
      .host_access = nullptr,
  };
  return table;
}

}  // namespace npu
