#include "csrc/driver/driver.h"

#include <stdlib.h>

namespace npu {
namespace {

int device_count() { return 1; }
uint64_t memory_total(int) { return uint64_t{1} << 30; }

void* segment_alloc(int, size_t bytes) { return aligned_alloc(512, bytes); }
void segment_free(int, void* segment, size_t) { free(segment); }

npu_queue queue_create(int, int, const npu_reports*) {
  return reinterpret_cast<npu_queue>(1);
}
void queue_destroy(npu_queue) {}

int launch(npu_queue, const npu_kernel*, const uint64_t*, npu_failure*) {
  return NPU_OK;
}

}  // namespace

const npu_driver& null_driver() {
  static const npu_driver table = {
      .size = sizeof(npu_driver),
      .abi = NPU_DRIVER_ABI,
      .name = "null",
      .device_count = device_count,
      .memory_total = memory_total,
      .segment_alloc = segment_alloc,
      .segment_free = segment_free,
      .queue_create = queue_create,
      .queue_destroy = queue_destroy,
      .launch = launch,
      .submit = nullptr,
      .queue_reset = nullptr,
      .segment_share = nullptr,
      .segment_open = nullptr,
      .task_times = nullptr,
      .host_access = nullptr,
  };
  return table;
}

}  // namespace npu
