#include "csrc/graph/inputs.h"

#include <unordered_set>

#include "csrc/engine/engine.h"
#include "csrc/graph/hooks.h"
#include "csrc/memory/caching_allocator.h"

namespace npu {

// Delegates, so that the destructor runs where there is no memory for all.
Inputs::Inputs(const Body& body) : Inputs(Empty{}, body) {
  std::unordered_set<uint32_t> in_group;
  for (const Group& group : body.groups)
    in_group.insert(group.nodes.begin(), group.nodes.end());
  std::unordered_set<uint64_t> seen;
  for (uint32_t n = 0; n < body.nodes.size(); ++n) {
    const Call& call = body.nodes[n].call;
    if (in_group.contains(n)) continue;
    for (uint32_t i = 0; call.kernel && i < call.kernel->n_views; ++i) {
      const uint64_t address = call.words[call.kernel->views[i].word];
      if (!address || !seen.insert(address).second) continue;
      Input& input = inputs_.emplace_back();
      input.watch.any_ended = &ended_;
      input.node = n;
      if (!allocator(body.device)
               .watch(reinterpret_cast<void*>(address), input.watch))
        inputs_.pop_back();
    }
  }
}

Inputs::~Inputs() {
  if (in_bad_fork()) return;
  for (Input& input : inputs_) allocator(body_.device).unwatch(input.watch);
}

std::string Inputs::missing() const {
  for (const Input& input : inputs_) {
    if (!input.watch.ended.load(std::memory_order_acquire)) continue;
    const Node& node = body_.nodes[input.node];
    const auto line_of = capture_hooks().line_of;
    const std::string freed = line_of ? line_of(input.watch.ended_at) : "";
    return "a tensor that " + std::string(node.call.kernel->name) +
           (node.line.empty() ? "" : ", captured at " + node.line + ",") +
           " uses has been freed" + (freed.empty() ? "" : " at " + freed);
  }
  return "";
}

}  // namespace npu
