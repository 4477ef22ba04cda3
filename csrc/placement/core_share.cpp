#include "csrc/placement/core_share.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "csrc/base/env.h"
#include "csrc/placement/policy.h"
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

}  // namespace

int core_budget() {
  static const int budget =
      int(env_int("NPU_DISPATCH_CORES", policy().part(), 1, kMostCores));
  return budget;
}

void set_core_limit(int device, int64_t stream, int cores) {
  Limits& limits = limits_[device];
  (stream < 0 ? limits.device : limits.streams[stream])
      .store(cores, std::memory_order_relaxed);
}

int core_share(int all) { return std::max(1, std::min(all, core_budget())); }

int core_share(int all, int device, int64_t stream) {
  const Limits& limits = limits_[device];
  for (const auto* limit : {&limits.device, &limits.streams[stream]})
    if (const int cores = limit->load(std::memory_order_relaxed); cores > 0)
      all = std::min(all, cores);
  return core_share(all);
}

}  // namespace npu
