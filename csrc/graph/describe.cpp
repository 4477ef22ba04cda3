#include "csrc/graph/describe.h"

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
      uint64_t bytes = view.itemsize;
      for (uint16_t k = 0; k < view.ndim; ++k) bytes *= uint64_t(view.sizes[k]);
      info.bytes += bytes;
      info.tensors.push_back({{view.sizes, view.sizes + view.ndim},
                              {view.strides, view.strides + view.ndim},
                              view.itemsize,
                              (view.access & NPU_READ) != 0,
                              (view.access & NPU_WRITE) != 0,
                              node.call.words[view.word]});
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

}  // namespace npu
