#include "csrc/engine/force_stop.h"

#include <atomic>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

// Relaxed everywhere: tasks poll these, and the stream carries the error.
std::atomic<bool> stopped_[kMaxDeviceBlocks];
// When stop_waiting_tasks() was called; 0: not yet.
std::atomic<uint64_t> exit_ns_{0};
// How long queued work still has to end the waits in the proper way.
constexpr uint64_t kGraceNs = 2'000'000'000;

}  // namespace

void stop_device(int device) {
  stopped_[device].store(true, std::memory_order_relaxed);
  for (Stream* stream : streams(device)) stream->force_stop();
}

void restart_device(int device) {
  clear_errors(device);
  stopped_[device].store(false, std::memory_order_relaxed);
}

bool device_stopped(int device) {
  if (stopped_[device].load(std::memory_order_relaxed)) return true;
  const uint64_t exit_ns = exit_ns_.load(std::memory_order_relaxed);
  return exit_ns && now_ns() > exit_ns + kGraceNs;
}

void stop_waiting_tasks() {
  exit_ns_.store(now_ns(), std::memory_order_relaxed);
}

}  // namespace npu
