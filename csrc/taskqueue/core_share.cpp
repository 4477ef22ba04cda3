#include "csrc/taskqueue/core_share.h"

#include <algorithm>

#include "csrc/base/env.h"
#include "csrc/taskqueue/engine.h"

namespace npu {
namespace {

constexpr int kMostCores = 4096;

thread_local const Stream* launching = nullptr;

// Has tasks, and does not merely wait for another stream. Relaxed: a share
// that is wrong for one kernel costs time only.
bool at_work(const Stream& stream) {
  return !stream.idle() &&
         stream.block().held_by.load(std::memory_order_relaxed) == 0;
}

}  // namespace

void launch_on_this_thread(const Stream& stream) { launching = &stream; }

int core_share(int all) {
  static const int budget =
      int(env_int("NPU_DISPATCH_CORES", kMostCores, 1, kMostCores));
  const int cores = std::min(budget, all);
  if (cores == 1) return 1;
  int here = 0, everywhere = 0;
  for (int device = 0; device < device_count(); ++device)
    for (const Stream* stream : streams(device)) {
      if (stream != launching && !at_work(*stream)) continue;
      ++everywhere;
      here += !launching || stream->device() == launching->device();
    }
  return std::max(
      1, std::min(cores / std::max(here, 1), all / std::max(everywhere, 1)));
}

}  // namespace npu
