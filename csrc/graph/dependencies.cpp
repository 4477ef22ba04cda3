#include "csrc/graph/dependencies.h"

#include <algorithm>
#include <functional>

#include "csrc/driver/kernel_flags.h"
#include "csrc/graph/body.h"
#include "csrc/sanitizer/box.h"

namespace npu {
namespace {

struct Access {
  Box box;
  uint32_t node;
  bool writes;
};

// A set of nodes.
class Nodes {
 public:
  explicit Nodes(size_t nodes) : words_((nodes + 63) / 64) {}

  bool has(uint32_t node) const { return words_[node / 64] >> node % 64 & 1; }
  void add(uint32_t node) { words_[node / 64] |= uint64_t{1} << node % 64; }
  void add(const Nodes& others) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= others.words_[i];
  }

 private:
  std::vector<uint64_t> words_;
};

bool in_turn(const Node& node) {
  if (node.kind != Node::Kind::kKernel) return true;
  const npu_kernel& kernel = *node.call.kernel;
  return kernel.flags & (NPU_KERNEL_ON_HOST | kTouchesMore) || !kernel.n_views;
}

std::vector<Access> accesses(const Body& body) {
  std::vector<Access> all;
  for (uint32_t n = 0; n < body.nodes.size(); ++n) {
    const Node& node = body.nodes[n];
    if (in_turn(node)) continue;
    const npu_kernel& kernel = *node.call.kernel;
    for (uint32_t i = 0; i < kernel.n_views; ++i) {
      const Box box = box_of(kernel.views[i], node.call.words.data());
      if (!box.empty())
        all.push_back({box, n, (kernel.views[i].access & NPU_WRITE) != 0});
    }
  }
  return all;
}

// The conflicts by the later node: which earlier ones it has one with.
std::vector<std::vector<uint32_t>> conflicts(const Body& body) {
  std::vector<std::vector<uint32_t>> before(body.nodes.size());
  std::vector<Access> all = accesses(body);
  std::ranges::sort(all, {}, [](const Access& a) { return a.box.lo; });
  std::vector<const Access*> open;  // those that reach beyond the next one
  for (const Access& access : all) {
    std::erase_if(open,
                  [&](const Access* o) { return o->box.hi <= access.box.lo; });
    for (const Access* const other : open) {
      if (other->node == access.node || !(other->writes || access.writes) ||
          !overlap(other->box, access.box))
        continue;
      const auto [first, second] = std::minmax(other->node, access.node);
      before[second].push_back(first);
    }
    open.push_back(&access);
  }
  // The last of them comes after all that is before it.
  uint32_t since = 0;
  for (uint32_t n = 0; n < before.size(); ++n) {
    const bool alone = in_turn(body.nodes[n]);
    const uint32_t until = alone ? n : std::min(n, since + 1);
    const bool any = alone || in_turn(body.nodes[since]);
    for (uint32_t other = since; any && other < until; ++other)
      before[n].push_back(other);
    if (alone) since = n;
  }
  return before;
}

}  // namespace

Edges dependencies(const Body& body) {
  std::vector<std::vector<uint32_t>> before = conflicts(body);
  Edges after(before.size());
  std::vector<Nodes> earlier;  // per node, all that come before it
  earlier.reserve(before.size());
  for (uint32_t n = 0; n < before.size(); ++n) {
    Nodes& all = earlier.emplace_back(before.size());
    // The latest first: it may come after the others.
    std::ranges::sort(before[n], std::greater{});
    for (const uint32_t other : before[n]) {
      if (all.has(other)) continue;
      after[other].push_back(n);
      all.add(other);
      all.add(earlier[other]);
    }
  }
  return after;
}

}  // namespace npu
