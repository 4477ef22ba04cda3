#include "csrc/placement/core_share.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "csrc/base/env.h"
#include "csrc/stats/layout.h"

namespace npu {
namespace {

constexpr int kMostCores = 4096;

// 0: no limit. Relaxed: a switch that orders nothing.
struct Limits {
  std::atomic<int> device{0};
  std::array<std::atomic<int>, kMostStreamIds> streams{};
};
std::array<Limits, kMaxDeviceBlocks> limits_;

void respect(const std::atomic<int>& limit, int& cores) {
  const int most = limit.load(std::memory_order_relaxed);
  if (most > 0) cores = std::min(cores, most);
}

}  // namespace

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

int core_share(int all) { return std::max(1, std::min(core_budget(), all)); }

int core_share(int all, int device, int64_t stream) {
  int cores = core_share(all);
  const Limits& limits = limits_[device];
  respect(limits.device, cores);
  respect(limits.streams[stream], cores);
  return cores;
}

}  // namespace npu
