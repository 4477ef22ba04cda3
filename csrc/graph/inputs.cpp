#include "csrc/graph/inputs.h"

#include <new>

#include "csrc/base/hooks.h"
#include "csrc/engine/engine.h"
#include "csrc/graph/body.h"

namespace npu {

Inputs::~Inputs() {
  if (in_bad_fork()) return;
  for (Input& input : inputs_) unwatch_memory(input.watch);
}

void Inputs::add(const Call& call, uint32_t node, Of of) {
  for (uint32_t i = 0; i < call.kernel->n_views; ++i) {
    const npu_view& view = call.kernel->views[i];
    const Of is = view.access == NPU_WRITE ? Of::kResults : Of::kArguments;
    if (of != Of::kAll && of != is) continue;
    const uint64_t address = call.words[view.word];  // 0: no elements
    if (!address || !seen_.insert(address).second) continue;
    Input& input = inputs_.emplace_back();
    input.watch.first_ended = &first_ended_;
    input.node = node;
    if (!watch_memory(reinterpret_cast<void*>(address), own_pool_, input.watch))
      inputs_.pop_back();
  }
}

Inputs::Missing Inputs::missing(uint64_t ends) const {
  for (const Input& input : inputs_) {
    const uint64_t ended = input.watch.ended.load(std::memory_order_acquire);
    if (!ended || ended > ends) continue;
    return {input.node, input.watch.ended_at};
  }
  return {};
}

std::string Inputs::Missing::where() const noexcept try {
  const std::string line = hooks.line_of ? hooks.line_of(site) : "";
  return line.empty() ? "" : " at " + line;
} catch (const std::bad_alloc&) {
  return "";  // as where the line is not known
}

}  // namespace npu
