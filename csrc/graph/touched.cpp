#include "csrc/graph/touched.h"

#include <algorithm>

#include "csrc/graph/body.h"
#include "csrc/sanitizer/box.h"

namespace npu {
namespace {

std::vector<ByteRange> bytes_of(const Body& body, uint32_t access) {
  std::vector<ByteRange> found;
  {
    std::lock_guard lock(body.calls_mutex);
    for (const Node& node : body.nodes) {
      const npu_kernel* const kernel = node.call.kernel;
      for (uint32_t i = 0; kernel && i < kernel->n_views; ++i) {
        if (!(kernel->views[i].access & access)) continue;
        const Box box = box_of(kernel->views[i], node.call.words.data());
        if (!box.empty()) found.push_back({box.lo, box.hi});
      }
    }
  }
  std::ranges::sort(found, {}, &ByteRange::lo);
  std::vector<ByteRange> joined;
  for (const ByteRange& bytes : found) {
    if (joined.empty() || bytes.lo > joined.back().hi)
      joined.push_back(bytes);
    else
      joined.back().hi = std::max(joined.back().hi, bytes.hi);
  }
  return joined;
}

}  // namespace

std::vector<ByteRange> written_bytes(const Body& body) {
  return bytes_of(body, NPU_WRITE);
}

std::vector<ByteRange> read_bytes(const Body& body) {
  return bytes_of(body, NPU_READ);
}

bool meet(const std::vector<ByteRange>& ranges, uintptr_t lo, uintptr_t hi) {
  const auto after = std::ranges::upper_bound(ranges, lo, {}, &ByteRange::hi);
  return after != ranges.end() && after->lo < hi;
}

}  // namespace npu
