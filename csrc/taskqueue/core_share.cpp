#include "csrc/taskqueue/core_share.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "csrc/base/env.h"
#include "csrc/stats/layout.h"
#include "csrc/taskqueue/engine.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

constexpr int kMostCores = 4096;

thread_local Stream* launching = nullptr;
void (*after_direct_task_)() = nullptr;

// 0: no limit. Relaxed: a switch that orders nothing.
struct Limits {
  std::atomic<int> device{0};
  std::array<std::atomic<int>, kPools * kStreamsPerPool> streams{};
};
std::array<Limits, kMaxDeviceBlocks> limits_;

void respect(const std::atomic<int>& limit, int& cores) {
  const int most = limit.load(std::memory_order_relaxed);
  if (most > 0) cores = std::min(cores, most);
}

}  // namespace

void launch_on_this_thread(Stream& stream) { launching = &stream; }
Stream* stream_of_this_thread() { return launching; }

void set_after_direct_task_hook(void (*hook)()) { after_direct_task_ = hook; }
void after_direct_task() {
  if (after_direct_task_) after_direct_task_();
}

int usable_cores() {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 1;
  return CPU_COUNT(&cpus);
}

int core_budget() {
  static const int budget =
      int(env_int("NPU_DISPATCH_CORES", kMostCores, 1, kMostCores));
  return budget;
}

void set_core_limit(int device, int64_t stream, int cores) {
  Limits& limits = limits_[device];
  (stream < 0 ? limits.device : limits.streams[stream])
      .store(cores, std::memory_order_relaxed);
}

int core_share(int all, const Stream* stream) {
  int cores = std::min(core_budget(), all);
  if (stream) {
    const Limits& limits = limits_[stream->device()];
    respect(limits.device, cores);
    respect(limits.streams[stream->id()], cores);
  }
  return std::max(1, cores);
}

int core_share(int all) { return core_share(all, launching); }

}  // namespace npu
