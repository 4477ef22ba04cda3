#include "csrc/distributed/exposure.h"

#include <algorithm>

#include "csrc/base/clock.h"
#include "csrc/distributed/core/collectives.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

// Relaxed throughout: statistics order nothing.
uint64_t read(const Counter& word) {
  return word.load(std::memory_order_relaxed);
}

// How long host threads have waited for the device, in all.
uint64_t host_waits(int device, uint64_t now) {
  const DeviceBlock& block = segment().devices[device];
  uint64_t sum = 0;
  for (int i = 0; i < int(WaitReason::kCount); ++i)
    sum += read(block.wait_ns[i]) + read(block.waiting[i]) * now -
           read(block.waiting_from[i]);
  return sum;
}

}  // namespace

template <typename F>
void Exposure::each_other(uint64_t now, F&& f) const {
  Segment& all = segment();
  const CollectiveLog& log = collective_log();
  // Blocks are taken in order, so the first unused one ends them.
  for (int i = 0; i < kMaxStreamBlocks; ++i) {
    const StreamBlock& block = all.streams[i];
    // Acquire: pairs with the release that tells of the block's device.
    if (!block.state.load(std::memory_order_acquire)) break;
    if (&block == &mine_ || block.device != mine_.device) continue;
    uint64_t ran =
        block.alive.at(now) - block.idle.at(now) - log.in_call[i].at(now);
    for (const RunningTime& held : block.held) ran -= held.at(now);
    f(i, ran);
  }
}

Exposure::Exposure(const Stream& stream, uint64_t now)
    : mine_(stream.block()),
      start_(now),
      host_waits_(host_waits(stream.device(), now)) {
  each_other(now, [this](int i, uint64_t ran) {
    before_[i] = ran;
    blocks_ = i + 1;
  });
  const Segment& all = segment();
  const bool inside =
      &mine_ >= all.streams && &mine_ < all.streams + kMaxStreamBlocks;
  in_call_ = inside ? &collective_log().in_call[&mine_ - all.streams] : nullptr;
  if (in_call_) in_call_->start(now);
}

Exposure::~Exposure() {
  if (in_call_) in_call_->stop(now_ns());
}

Exposure::Times Exposure::until(uint64_t now) const {
  const uint64_t ran = now - start_;
  uint64_t most = 0;
  each_other(now, [&](int i, uint64_t busy) {
    // A stream that has been made since is left out. Words that change between
    // two reads may make a difference that is negative, which is no time.
    if (i >= blocks_ || int64_t(busy - before_[i]) < 0) return;
    most = std::max(most, busy - before_[i]);
  });
  const uint64_t exposed = ran - std::min(most, ran);
  const auto waited = int64_t(host_waits(mine_.device, now) - host_waits_);
  return {exposed, std::min(exposed, uint64_t(std::max<int64_t>(waited, 0)))};
}

}  // namespace npu
