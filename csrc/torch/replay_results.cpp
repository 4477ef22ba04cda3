#include "csrc/torch/replay_results.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>

#include "csrc/torch/allocator.h"

namespace npu {
namespace {

std::vector<ByteRange> bytes_of(const c10::Storage& storage) {
  const auto lo = reinterpret_cast<uintptr_t>(storage.data());
  return {{lo, lo + storage.nbytes()}};
}

Overwrites& overwrites_of(Graph& graph, const char* what) {
  if (!graph.body()) graph.nothing_captured(what);
  return *graph.body()->overwrites;
}

class ChangedResult final : public Contents {
 public:
  explicit ChangedResult(const at::Tensor& tensor)
      : Contents(bytes_of(tensor.storage())),
        storage_(tensor.storage().getWeakStorageImpl()),
        version_(tensor.unsafeGetTensorImpl()->version_counter()) {}

  bool over() const override { return storage_.expired(); }
  void overwritten() override { version_.bump(); }

 private:
  const c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  c10::VariableVersion version_;
};

}  // namespace

class HeldResult final : public Contents {
 public:
  explicit HeldResult(c10::Storage storage)
      : Contents(bytes_of(storage)),
        storage_(storage.getWeakStorageImpl()),
        kept_(std::move(storage)) {}

  // Those who own the storage now do not hold the result.
  void nobody_holds_it() { owners_ = storage_.use_count(); }
  void graph_is_gone() {
    owners_ = 0;
    kept_ = c10::Storage();
  }
  // Null where the graph is gone.
  const void* data() const { return kept_ ? kept_.data() : nullptr; }

  bool held(std::span<const void* const> given_up) const override {
    const auto others = std::ranges::count(given_up, data());
    return storage_.use_count() > owners_ + size_t(others);
  }
  Stream* take_borrower() override {
    return kept_ ? npu::take_borrower(kept_.data_ptr()) : nullptr;
  }
  bool over() const override { return storage_.expired(); }

 private:
  const c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  c10::Storage kept_;
  size_t owners_ = 0;
};

ReplayResults::ReplayResults(Overwrites& of,
                             std::vector<c10::Storage> storages) {
  for (c10::Storage& storage : storages) {
    const bool known = std::ranges::any_of(results_, [&](const auto& result) {
      return result->data() == storage.data();
    });
    if (!known)
      results_.push_back(std::make_shared<HeldResult>(std::move(storage)));
  }
  storages.clear();  // or they would count as owners
  for (const auto& result : results_) {
    result->nobody_holds_it();
    of.add(result);
  }
}

ReplayResults::~ReplayResults() {
  for (const auto& result : results_) result->graph_is_gone();
}

void note_changes_of(const std::vector<at::Tensor>& results, Graph& graph) {
  Overwrites& overwrites = overwrites_of(graph, "note_changes_of()");
  for (const at::Tensor& result : results)
    if (result.has_storage() && !result.is_inference())
      overwrites.add(std::make_shared<ChangedResult>(result));
}

class OverwriteCount::Counted final : public Contents {
 public:
  using Contents::Contents;
  bool over() const override { return is_over.load(std::memory_order_relaxed); }
  void overwritten() override { count.fetch_add(1, std::memory_order_relaxed); }

  // Relaxed, both: the program orders replays and those who ask; what is over
  // may be looked after a while longer.
  std::atomic<uint64_t> count{0};
  std::atomic<bool> is_over{false};
};

OverwriteCount::OverwriteCount(Graph& graph, const Graph& reader)
    : counted_(std::make_shared<Counted>(
          reader.body() ? bytes_of(*reader.body(), NPU_READ)
                        : std::vector<ByteRange>())) {
  overwrites_of(graph, "OverwriteCount()").add(counted_);
}

OverwriteCount::~OverwriteCount() {
  counted_->is_over.store(true, std::memory_order_relaxed);
}

uint64_t OverwriteCount::now() const {
  return counted_->count.load(std::memory_order_relaxed);
}

}  // namespace npu
