#include "csrc/placement/core_share.h"

#include <array>
#include <atomic>

#include "csrc/base/env.h"
#include "csrc/placement/this_machine.h"
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

int core_share(int all) { return Policy::share(all, core_budget(), 0, 0); }

int core_share(int all, int device, int64_t stream) {
  const Limits& limits = limits_[device];
  return Policy::share(all, core_budget(),
                       limits.device.load(std::memory_order_relaxed),
                       limits.streams[stream].load(std::memory_order_relaxed));
}

}  // namespace npu
