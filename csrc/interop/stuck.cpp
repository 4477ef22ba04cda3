#include "csrc/interop/stuck.h"

#include "csrc/engine/engine.h"
#include "csrc/interop/flag.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

// Relaxed throughout: see held_by_nobody().
bool runs(const Stream& stream, const npu_kernel& kernel) {
  const RecentTask& task =
      stream.block().recent[stream.retired().value() % kRecentTasks];
  return task.name.load(std::memory_order_relaxed) ==
         reinterpret_cast<uint64_t>(kernel.name);
}

bool runs_flag_wait(const Stream& stream) {
  return runs(stream, kTakeFlag) || runs(stream, kReachFlag);
}

}  // namespace

const Stream* held_by_nobody(const Stream& stream) {
  constexpr int kMostHops = kMaxStreamBlocks;
  const Stream* at = &stream;
  for (int hop = 0; hop < kMostHops; ++hop) {
    if (at->idle()) return nullptr;
    const StreamBlock& block = at->block();
    const RunningTime& held = block.held[int(Hold::kEvent)];
    if (!(held.word.load(std::memory_order_relaxed) & RunningTime::kRunning))
      return nullptr;
    const uint64_t by = block.held_by.load(std::memory_order_relaxed);
    if (!by) return runs_flag_wait(*at) ? at : nullptr;
    const Stream* const next =
        find_stream(int((by - 1) >> 32), int64_t(uint32_t(by - 1)));
    if (!next || next->retired().reached(
                     block.held_until.load(std::memory_order_relaxed)))
      return nullptr;
    at = next;
  }
  return at;
}

bool waits_for_processes(const Stream& stream) {
  return runs(stream, kReachFlag);
}

}  // namespace npu
