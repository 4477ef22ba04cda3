// torch.accelerator.Graph on npu.
#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/core/GraphImplInterface.h>
#include <c10/core/SafePyObject.h>
#include <c10/util/Exception.h>

#include <memory>

#include "csrc/base/hooks.h"
#include "csrc/graph/graph.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/graph.h"
#include "csrc/torch/switches.h"

namespace npu {
namespace {

using at::impl::ThreadLocalPythonObjects;

// Torch hands these objects of a thread to the threads that work for it, as
// autograd's own do in a backward. This one has no Python object in it.
constexpr const char* kPart = "npu.capture";
struct Part final : c10::SafePyObject {
  explicit Part(uint64_t number)
      : SafePyObject(nullptr, nullptr), number(number) {}
  const uint64_t number;
};

uint64_t part_of() {
  if (!ThreadLocalPythonObjects::contains(kPart)) return 0;
  return static_cast<const Part&>(*ThreadLocalPythonObjects::get(kPart)).number;
}

const bool set_ = (hooks.capture_of_thread = part_of, true);

// Autograd copies such objects at each backward.
struct ForgetsPart {
  ~ForgetsPart() {
    if (part_of() && !active_capture()) ThreadLocalPythonObjects::erase(kPart);
  }
};

void submit(Graph& graph) {
  Stream* failed = nullptr;
  if (!graph.replay(usable_stream(graph.device()), failed)) [[unlikely]]
    raise_stream_error(*failed);
}

struct Impl final : at::GraphImplInterface {
  explicit Impl(const at::GraphImplArgs&) {}

  void capture_begin(c10::MempoolId_t pool,
                     at::GraphCaptureMode mode) override {
    begin_capture(
        graph_, pool.second,
        mode == at::GraphCaptureMode::ThreadLocal ? CaptureMode::kThreadLocal
        : mode == at::GraphCaptureMode::Relaxed   ? CaptureMode::kRelaxed
                                                  : CaptureMode::kGlobal,
        true);
  }
  void capture_end() override { end_capture(graph_); }
  void instantiate() override {}  // a captured graph is ready for replay
  void replay() override { npu::replay(graph_); }
  void reset() override { graph_.reset(); }
  c10::MempoolId_t pool() const override { return {0, graph_.pool()}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false,
        "npu: torch.accelerator.Graph cannot be drawn; capture with "
        "torch.npu.NPUGraph, whose debug_dump() writes JSON and pictures");
  }

 private:
  Graph graph_;
};

}  // namespace

void begin_capture(Graph& graph, uint64_t pool, CaptureMode mode,
                   bool check_inputs) {
  Stream& stream = usable_stream(current_device());
  if (!active_capture()) {
    host_wait(stream, stream.tail(), WaitReason::kGraph);
    raise_if_failed(stream);
  }
  graph.capture_begin(stream, pool, mode, check_inputs);
  try {
    ThreadLocalPythonObjects::set(
        kPart, std::make_shared<Part>(Capture::get().number()));
    note_switches(graph);
  } catch (...) {
    graph.reset();  // ends the capture
    throw;
  }
}

void end_capture(Graph& graph) {
  const ForgetsPart at_the_end;
  graph.capture_end(usable_stream(current_device()));
}

// Replays under the switches of the capture, under which its kernels were
// chosen.
void replay(Graph& graph) {
  if (!has_its_switches(graph)) [[unlikely]]
    return replay_under_its_switches(graph, &submit);
  submit(graph);
}

}  // namespace npu

namespace at {
// torch looks for the backend's name in capitals.
REGISTER_GRAPH_IMPL(NPU, ::npu::Impl)
}  // namespace at
