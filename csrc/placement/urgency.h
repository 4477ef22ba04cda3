// How the streams of normal priority make room for the urgent ones.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/stats/layout.h"

namespace npu {

namespace detail {
// By device: how many launchers of urgent streams have something to run now.
inline std::atomic<int32_t> urgent_at_work[kMaxDeviceBlocks]{};
// Policy::needs_all() within NPU_DISPATCH_CORES.
bool need_all(int urgent);
}  // namespace detail

// Called by the launcher of an urgent stream when it begins, and when it
// ceases, to have something to run.
void urgent_begins(int device);
void urgent_ends(int device);

// Whether the urgent streams need all cores of the device. Asked before every
// task of a normal stream. Relaxed: a preference orders nothing, and a task
// that starts too early or too late is as right as any other.
inline bool urgent_need_all(int device) {
  const int32_t urgent =
      detail::urgent_at_work[device].load(std::memory_order_relaxed);
  return urgent > 0 && detail::need_all(urgent);
}

// Sleeps until the urgent streams do not need all cores any more, for a
// millisecond at most: an urgent task may be waiting, in somebody else's code,
// for a task of a normal stream.
void give_way(int device);

}  // namespace npu
