// Devices, streams and generators.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/driver/driver.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/engine/switches.h"
#include "csrc/graph/capture.h"
#include "csrc/observe/trace.h"
#include "csrc/ops/boxed.h"
#include "csrc/ops/launch.h"
#include "csrc/ops/launch_state.h"
#include "csrc/ops/trial.h"
#include "csrc/placement/core_share.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/python/planned_end.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/this_thread.h"
#include "csrc/torch/backward.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/guard_memory.h"
#include "csrc/torch/switches.h"

namespace py = pybind11;

namespace npu {

const Event* event_at(int64_t id) {
  TORCH_CHECK(!(id & 1), "an interprocess event has no place in a queue");
  const Event* event = reinterpret_cast<const Event*>(id);
  return event && event->recorded() ? event : nullptr;
}

namespace {

// Device, stream and number of unfinished tasks of each stream that was given
// up.
std::vector<std::tuple<int, int64_t, uint64_t>> finish(uint64_t patience_ns) {
  std::vector<std::tuple<int, int64_t, uint64_t>> left;
  for (const Stream* s : finish_launched(patience_ns))
    left.emplace_back(s->device(), s->id(), s->unfinished());
  return left;
}

// `synchronize()` with nothing queued must cost next to nothing, so it is a
// plain C function and not a pybind11 one.
PyObject* fast_synchronize(PyObject*, PyObject* const* args, Py_ssize_t n) {
  HANDLE_TH_ERRORS
  const long device = n ? PyLong_AsLong(args[0]) : -1;
  if (device == -1 && PyErr_Occurred()) return nullptr;
  with_host_memory([&] { synchronize(device_or_current(int(device))); });
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}
PyMethodDef synchronize_def = {
    "synchronize",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(fast_synchronize)),
    METH_FASTCALL, "synchronize(device=-1): wait for all of a device's work"};

}  // namespace

void bind_device(py::module_& m) {
  m.def("device_count", &device_count);
  m.def("set_up_thread", &set_up_thread);
  m.def("drop_unfinished_backward", &drop_unfinished_backward);
  m.def("forget_operator", &forget_operator);
  m.def("knows_operator", &knows_operator);
  m.def("reports_ends", [] { return driver().submit != nullptr; });
  m.def("is_initialized", [] { return initialized() && !in_bad_fork(); });
  m.def("in_bad_fork", &in_bad_fork);
  def(m, "init", [] {
    check_usable();
    TORCH_CHECK(device_count() > 0, "No NPU devices are available");
    usable_stream(current_device());
  });
  m.def("current_device", &current_device);
  def(m, "set_device", [](int device) { exchange_device(device); });
  def(m, "exchange_device", [](int device) { return exchange_device(device); });
  m.add_object("synchronize", PyCFunction_New(&synchronize_def, nullptr));
  def(m, "finish_launched", &finish);
  m.def("remove_files", [] {
    remove_segment();
    remove_trace_file();
  });
  m.def("cold_launches", &cold_launches);
  m.def("shape_corrections", &shape_corrections);
  m.def("set_trial_limit", &set_trial_limit);
  m.def("read_switches", [] {
    LaunchState::read_switches();
    note_switch_change();
  });
  m.def("set_launch_blocking", &set_launch_blocking);
  m.def("set_thread_launch_blocking", &set_thread_launch_blocking);
  m.def("launch_blocks", &launch_blocks);

  m.def("current_stream", wrapped([](int device) {
          return usable_stream(device_or_current(device)).id();
        }),
        py::arg("device") = -1);
  def(m, "set_current_stream", [](int device, int64_t id) {
    set_current_stream(stream_at(device, id));
  });
  def(m, "new_sync_launch_stream", [](int device) {
    check_usable(device);
    return next_stream(device, StreamPool::kSyncLaunch).id();
  });
  // Before work uses the stream's memory without going through its queue.
  def(m, "drain_stream", [](int device, int64_t id) {
    Stream& s = stream_at(device, id);
    host_wait(s, s.tail(), WaitReason::kRawHandle);
    raise_if_failed(s);
  });
  def(m, "stream_priority",
      [](int device, int64_t id) { return stream_at(device, id).priority(); });
  def(m, "set_core_limit", [](int device, int64_t id, int cores) {
    check_device(device);
    set_core_limit(device, id < 0 ? id : stream_at(device, id).id(), cores);
  });
  def(m, "event_time_ns", [](int64_t id) {
    const Event* event = event_at(id);
    TORCH_CHECK(event, "the event was never recorded");
    TORCH_CHECK(event->timing(),
                "the event was created without enable_timing=True");
    event->synchronize();
    raise_if_failed(*event->stream());
    if (const auto planned = planned_end(*event)) return *planned;
    return time_of(*event);
  });
  def(m, "default_generator", [](int device) {
    check_device(device);
    return py::reinterpret_steal<py::object>(
        THPGenerator_initDefaultGenerator(default_generator(device)));
  });
}

}  // namespace npu
