#include "csrc/graph/graph.h"

#include <atomic>

#include "csrc/graph/lifetime.h"

namespace npu {

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
    body_->overwrites.emplace(replay_memory(device_, pool_),
                              written_bytes(*body_));
  } catch (...) {
    if (body_) reset();
    throw;
  }
}

void Graph::reset() {
  Capture::get().abandon(this);
  if (body_) {
    body_->leave_groups();
    destroy_when_done(std::move(body_));
  }
}

uint64_t Graph::pool() const {
  if (!body_ && !capturing()) nothing_captured("pool()");
  return pool_;
}

}  // namespace npu
