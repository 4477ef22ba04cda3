#include "csrc/graph/describe.h"

#include "csrc/driver/view.h"

namespace npu {
namespace {

const char* name(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kKernel:
      return node.call.kernel->name;
    case Node::Kind::kTimestamp:
      return "timestamp";
    case Node::Kind::kWait:
      return "wait";
  }
  return "";
}

}  // namespace

std::vector<NodeInfo> describe(const Body& body) {
  std::vector<NodeInfo> infos;
  std::lock_guard lock(body.calls_mutex);
  infos.reserve(body.nodes.size());
  for (const Node& node : body.nodes) {
    NodeInfo info{
        name(node), body.lanes[node.lane].stream->id(), node.line, 0, {}, {}};
    if (node.previous >= 0) info.after.push_back(node.previous);
    if (node.kind == Node::Kind::kWait && node.wait_for >= 0)
      info.after.push_back(node.wait_for);
    const npu_kernel* kernel = node.call.kernel;
    for (uint32_t i = 0; kernel && i < kernel->n_views; ++i) {
      const npu_view& view = kernel->views[i];
      std::vector<int64_t> sizes = sizes_of(view, node.call.words.data());
      uint64_t bytes = view.itemsize;
      for (const int64_t size : sizes) bytes *= uint64_t(size);
      info.bytes += bytes;
      info.tensors.push_back({std::move(sizes), strides_of(view), view.itemsize,
                              (view.access & NPU_READ) != 0,
                              (view.access & NPU_WRITE) != 0,
                              node.call.words[view.word]});
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

}  // namespace npu
