#include "csrc/graph/written.h"

#include <algorithm>

#include "csrc/sanitizer/box.h"

namespace npu {

std::vector<Bytes> written_bytes(const Body& body) {
  std::vector<Bytes> found;
  {
    std::lock_guard lock(body.calls_mutex);
    for (const Node& node : body.nodes) {
      const npu_kernel* const kernel = node.call.kernel;
      for (uint32_t i = 0; kernel && i < kernel->n_views; ++i) {
        if (!(kernel->views[i].access & NPU_WRITE)) continue;
        const Box box = box_of(kernel->views[i], node.call.words.data());
        if (!box.empty()) found.push_back({box.lo, box.hi});
      }
    }
  }
  std::ranges::sort(found, {}, &Bytes::lo);
  std::vector<Bytes> joined;
  for (const Bytes& bytes : found) {
    if (joined.empty() || bytes.lo > joined.back().hi)
      joined.push_back(bytes);
    else
      joined.back().hi = std::max(joined.back().hi, bytes.hi);
  }
  return joined;
}

bool meet(const std::vector<Bytes>& ranges, uintptr_t lo, uintptr_t hi) {
  const auto after = std::ranges::upper_bound(ranges, lo, {}, &Bytes::hi);
  return after != ranges.end() && after->lo < hi;
}

}  // namespace npu
