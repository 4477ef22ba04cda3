// Graphs: capture, replay, groups of tasks, and what a graph consists of.
#include "csrc/graph/graph.h"
#include "csrc/base/hooks.h"
#include "csrc/engine/engine.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/graph/lifetime.h"
#include "csrc/graph/update.h"
#include "csrc/python/bindings.h"
#include "csrc/python/call_stack.h"
#include "csrc/python/def.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/graph.h"
#include "csrc/torch/replay_results.h"

namespace py = pybind11;
using namespace py::literals;

namespace npu {
namespace {

std::string current_line() { return call_line(current_call_stack_id()); }

CaptureMode mode_of(const std::string& name) {
  if (name == "global") return CaptureMode::kGlobal;
  if (name == "thread_local") return CaptureMode::kThreadLocal;
  if (name == "relaxed") return CaptureMode::kRelaxed;
  TORCH_CHECK(false, "npu: unknown capture_error_mode '", name,
              "'; expected 'global', 'thread_local' or 'relaxed'");
}

bool is_capturing() {
  return initialized() && current_stream(current_device()).sink() != nullptr &&
         active_capture() != nullptr;
}

py::dict describe_node(const NodeInfo& node) {
  py::list tensors;
  for (const TensorInfo& t : node.tensors)
    tensors.append(py::dict(
        "shape"_a = t.sizes, "strides"_a = t.strides, "itemsize"_a = t.itemsize,
        "access"_a = t.written ? (t.read ? "read-write" : "write") : "read",
        "address"_a = t.address));
  return py::dict("op"_a = node.op, "stream"_a = node.stream,
                  "line"_a = node.line, "bytes"_a = node.bytes,
                  "tensors"_a = tensors, "after"_a = node.after);
}

py::list describe_graph(const Graph& graph) {
  py::list nodes;
  if (!graph.body()) graph.nothing_captured("debug_dump()");
  for (const NodeInfo& node : describe(*graph.body()))
    nodes.append(describe_node(node));
  return nodes;
}

}  // namespace

void replay_graph(Graph& graph) {
  if (graph.one_stream()) return replay(graph);
  py::gil_scoped_release release;
  replay(graph);
}

void bind_graph(py::module_& m) {
  hooks.line = current_line;
  hooks.line_of = call_line;
  py::class_<Group, std::shared_ptr<Group>>(m, "TaskGroup");
  py::class_<Graph> graph(m, "Graph");
  def_init(graph)
      .def("capture_begin",
           wrapped([](Graph& graph, uint64_t pool, const std::string& mode,
                      bool check_inputs) {
             begin_capture(graph, pool, mode_of(mode), check_inputs);
           }))
      .def("capture_end", wrapped([](Graph& graph) { end_capture(graph); }))
      .def("replay", wrapped(&replay_graph))
      .def("reset", wrapped([](Graph& graph) { graph.reset(); }))
      .def("pool", wrapped([](const Graph& graph) { return graph.pool(); }))
      .def("device", &Graph::device)
      .def("capturing", &Graph::capturing)
      .def("captured",
           [](const Graph& graph) { return graph.body() != nullptr; })
      .def("nodes", wrapped(&describe_graph))
      .def("note_changes_of",
           wrapped([](Graph& graph, const std::vector<at::Tensor>& results) {
             note_changes_of(results, graph);
           }));
  py::class_<OverwriteCount> count(m, "OverwriteCount");
  def_init<Graph&, const Graph&>(count).def("now", &OverwriteCount::now);
  m.def("new_graph_pool", &new_pool);
  m.def("graph_pool_users", &pool_users);
  m.def("is_capturing", &is_capturing);
  def(m, "begin_task_group", [](int device, int64_t id) {
    Capture::get().begin_group(stream_at(device, id));
  });
  def(m, "end_task_group", [](int device, int64_t id) {
    return Capture::get().end_group(stream_at(device, id));
  });
  def(m, "begin_task_update",
      [](int device, int64_t id, Graph& graph, std::shared_ptr<Group> group) {
        begin_update(stream_at(device, id), graph, std::move(group));
      });
  def(m, "end_task_update",
      [](int device, int64_t id) { end_update(stream_at(device, id)); });
}

}  // namespace npu
