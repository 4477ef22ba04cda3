#include "csrc/engine/stream_pools.h"

#include <array>
#include <atomic>
#include <stdexcept>
#include <string>

#include "csrc/base/env.h"
#include "csrc/stats/layout.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

std::atomic<bool> strict_{env_flag("NPU_STRICT_STREAMS")};

// The next index of each pool, by device. Relaxed: the count orders nothing.
std::array<std::array<std::atomic<uint32_t>, kPools>, kMaxDeviceBlocks> next_{};
std::array<std::atomic<uint32_t>, kMaxDeviceBlocks> owned_{};  // a bit a stream

}  // namespace

int pool_size(StreamPool pool) {
  static const int most =
      int(env_int("STREAMS_PER_DEVICE", kStreamsPerPool, 1, kStreamsPerPool));
  if (pool == kOwnedPool || pool >= StreamPool::kComm) return kStreamsPerPool;
  switch (pool) {
    case StreamPool::kDefault:
      return 1;
    case StreamPool::kSyncLaunch:
      return kSyncLaunchStreams;
    case StreamPool::kNormal:
    case StreamPool::kHigh:
      return most;
    case StreamPool::kComm:
      return kStreamsPerPool;
  }
  return 0;
}

Stream& next_stream(int device, StreamPool pool) {
  const uint32_t n =
      next_[device][int(pool)].fetch_add(1, std::memory_order_relaxed);
  if (n >= uint32_t(pool_size(pool)) && strict_pools())
    throw std::runtime_error(
        "npu:" + std::to_string(device) + " has handed out all " +
        std::to_string(pool_size(pool)) +
        " streams of this kind, and strict mode hands out none twice; keep "
        "and reuse torch.npu.Stream objects");
  return *find_stream(device, int64_t(pool) << 5 | (n % pool_size(pool)));
}

// Relaxed: a switch that orders nothing.
void set_strict_pools(bool strict) {
  strict_.store(strict, std::memory_order_relaxed);
}
bool strict_pools() { return strict_.load(std::memory_order_relaxed); }

Stream* take_owned_stream(int device) {
  std::atomic<uint32_t>& owned = owned_[device];
  // Acquire: what the previous owner did comes before what the next one does.
  uint32_t taken = owned.load(std::memory_order_relaxed);
  int index;
  do {
    if (!~taken) return nullptr;
    index = __builtin_ctz(~taken);
  } while (!owned.compare_exchange_weak(taken, taken | 1u << index,
                                        std::memory_order_acquire));
  return find_stream(device, int64_t(kOwnedPool) << 5 | index);
}

bool give_owned_stream(Stream& stream) {
  if (StreamPool(stream.id() >> 5) != kOwnedPool) return false;
  const uint32_t bit = 1u << (stream.id() & 31);
  // Release: pairs with the acquire in take_owned_stream().
  return owned_[stream.device()].fetch_and(~bit, std::memory_order_release) &
         bit;
}

}  // namespace npu
