#include "csrc/torch/replay_memory.h"

#include <algorithm>

#include "csrc/engine/engine.h"
#include "csrc/graph/graph.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/allocator.h"

namespace npu {

ReplayMemory::ReplayMemory() : pool_(new_pool()) {}

ReplayResults::ReplayResults(std::shared_ptr<ReplayMemory> memory,
                             const Body& body,
                             std::vector<c10::Storage> storages)
    : memory_(std::move(memory)), written_(written_bytes(body)) {
  for (c10::Storage& storage : storages) {
    const bool known = std::ranges::any_of(own_, [&](const auto& result) {
      return result->kept.data() == storage.data();
    });
    if (known) continue;
    auto weak = storage.getWeakStorageImpl();
    own_.push_back(std::make_shared<ReplayMemory::Result>(
        ReplayMemory::Result{std::move(storage), std::move(weak), 0}));
  }
  storages.clear();  // or they would count as owners
  for (const auto& result : own_) {
    result->owners = result->storage.use_count();
    const auto lo = reinterpret_cast<uintptr_t>(result->kept.data());
    for (ReplayResults* const earlier : memory_->graphs_)
      if (meet(earlier->written_, lo, lo + result->kept.nbytes()))
        earlier->others_.push_back(result);
  }
  memory_->graphs_.push_back(this);
}

ReplayResults::~ReplayResults() {
  std::erase(memory_->graphs_, this);
  for (const auto& result : own_) {
    result->owners = 0;
    result->kept = c10::Storage();
  }
}

bool ReplayResults::are_free() {
  const auto expired = [](const auto& result) {
    return result->storage.expired();
  };
  if (std::erase_if(others_, expired)) any_stream_borrows_ = true;
  const auto held = [](const auto& result) { return result->held(); };
  return std::ranges::none_of(own_, held) &&
         std::ranges::none_of(others_, held);
}

void ReplayResults::wait_for_borrowers(Stream& stream) {
  if (std::exchange(any_stream_borrows_, false))
    for (Stream* const other : streams(stream.device()))
      stream.wait_for(*other, other->tail());
  for (const auto* results : {&own_, &others_})
    for (const auto& result : *results)
      npu::wait_for_borrowers(result->kept.data_ptr(), stream);
}

}  // namespace npu
