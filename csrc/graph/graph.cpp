#include "csrc/graph/graph.h"

#include <atomic>

#include "csrc/driver/driver.h"
#include "csrc/graph/lifetime.h"

namespace npu {
namespace {

const char* name(const Node& node) {
  if (node.call.kernel) return node.call.kernel->name;
  return node.kind == Node::Kind::kTimestamp ? "timestamp" : "wait";
}

}  // namespace

uint64_t new_pool() {
  static std::atomic<uint64_t> last;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Graph::~Graph() { reset(); }

void Graph::nothing_captured(const char* what) const {
  throw std::runtime_error(std::string("npu: ") + what +
                           " of a graph without a capture; capture something "
                           "with `with torch.npu.graph(g):` first");
}

void Graph::input_missing() const {
  const Inputs::Missing missing = body_->inputs->missing(memory_ends_noted());
  std::lock_guard lock(body_->calls_mutex);
  const Node& node = body_->nodes[missing.node];
  throw CaptureError(
      "npu: replay(): a tensor that " + std::string(node.call.kernel->name) +
      (node.line.empty() ? "" : ", captured at " + node.line + ",") +
      " uses has been freed" + missing.where() +
      "; keep the tensors that a graph uses alive, and change "
      "their contents in place (copy_())");
}

void Graph::capture_begin(Stream& stream, uint64_t pool, CaptureMode mode,
                          bool check_inputs) {
  if (body_)
    throw CaptureError(
        "npu: this graph has been captured already; reset() it, or capture "
        "into another one");
  collect_graphs();
  const uint64_t own = pool ? pool : new_pool();
  Capture::get().begin(this, stream, own, mode, check_inputs);
  pool_ = own;
  device_ = stream.device();
}

void Graph::capture_end(Stream& stream) {
  try {
    body_ = Capture::get().end(this, stream);
    body_->overwrites.emplace(*body_->graph_pool, bytes_of(*body_, NPU_WRITE));
  } catch (...) {
    if (body_) reset();
    throw;
  }
}

void Graph::reset() {
  Capture::get().abandon(this);
  if (body_) {
    body_->leave_groups();
    destroy_elsewhere(std::move(body_));
    collect_graphs();
  }
}

uint64_t Graph::pool() const {
  if (!body_ && !capturing()) nothing_captured("pool()");
  return pool_;
}

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
