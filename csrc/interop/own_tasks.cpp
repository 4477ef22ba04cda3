#include "csrc/interop/own_tasks.h"

#include <stdio.h>

#include <atomic>

#include "csrc/base/clock.h"
#include "csrc/engine/switches.h"
#include "csrc/observe/trace.h"

namespace npu {
namespace {

int run_sleep(const npu_kernel*, const uint64_t* words, npu_failure* failure) {
  for (const uint64_t end = now_ns() + words[0]; now_ns() < end;)
    if (device_stopped(int(words[1]))) {
      snprintf(failure->text, sizeof failure->text,
               "_sleep() was ended by a FORCE STOP of the device");
      return NPU_ERROR;
    }
  return NPU_OK;
}

int run_mark(const npu_kernel*, const uint64_t* words, npu_failure*) {
  if (auto* at = reinterpret_cast<std::atomic<uint64_t>*>(words[0]))
    at->store(now_ns(), std::memory_order_relaxed);
  trace_mark({words[1], uint32_t(words[2]), uint32_t(words[2] >> 32),
              uint8_t(words[3]), int32_t(words[3] >> 32), int64_t(words[4])});
  return NPU_OK;
}

}  // namespace

const npu_kernel kSleep{run_sleep, "_sleep", nullptr, 0};
const npu_kernel kMark{run_mark, "range marker", nullptr, 0,
                       NPU_KERNEL_ON_HOST};

}  // namespace npu
