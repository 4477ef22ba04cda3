#include "csrc/driver/host/host_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <string>

#include "csrc/base/env.h"
#include "csrc/driver/host/host_memory.h"

namespace npu {
namespace {

constexpr int kMaxDevices = 64;

// ASCEND_RT_VISIBLE_DEVICES: ascending indices; reading stops at the first bad
// item, and a wrong order means no device at all.
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

// Of which each process may see a part. One for each rank of this machine,
// which its launcher counts: programs set_device(LOCAL_RANK).
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

// The launching thread is the queue; nothing to keep.
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
  };
  return table;
}

}  // namespace npu
