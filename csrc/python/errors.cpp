// What a failed task raises in Python, and the stacks it names.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/base/hooks.h"
#include "csrc/engine/engine.h"
#include "csrc/python/bindings.h"
#include "csrc/python/call_stack.h"
#include "csrc/python/def.h"
#include "csrc/python/python_frames.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace py = pybind11;
using namespace py::literals;

namespace npu {
namespace {

// A kernel's text may have any bytes, and may be cut within a character.
py::str text_of(const std::string& bytes) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(bytes.data(), Py_ssize_t(bytes.size()), "replace"));
}

py::dict to_dict(const StreamError& error) {
  return py::dict(
      "op"_a = text_of(error.op), "device"_a = error.device,
      "stream"_a = error.stream, "task"_a = error.task, "code"_a = error.code,
      "text"_a = text_of(error.text), "arguments"_a = text_of(error.arguments),
      "message"_a = text_of(error.message()), "site"_a = error.site.site,
      "forward_site"_a = error.site.forward,
      "cause"_a = error.cause ? py::object(to_dict(*error.cause)) : py::none());
}

// npu_dispatch.npu.runtime.device_error makes the exception.
void raise_in_python(const StreamError& error) {
  if (!Py_IsInitialized() || python_is_finalizing()) return;
  py::gil_scoped_acquire gil;
  try {
    const py::object exception =
        py::module_::import("npu_dispatch.npu.runtime.device_error")
            .attr("from_failure")(to_dict(error));
    PyErr_SetObject(py::type::of(exception).ptr(), exception.ptr());
  } catch (py::error_already_set& e) {
    e.restore();
  }
  throw_pending();
}

py::list stack_of(uint32_t site) {
  py::list frames;
  for (const StackFrame& f : call_stack(site))
    frames.append(py::make_tuple(f.file, f.line, f.function));
  return frames;
}

}  // namespace

void install_error_hooks() {
  hooks.raise = raise_in_python;
  hooks.call_site = current_call_site;
  hooks.call_stack = current_call_stack_id;
}

void bind_errors(py::module_& m) {
  m.def("stream_error",
        wrapped([](int device, int64_t id) -> std::optional<py::dict> {
          const auto error = stream_at(device, id).error();
          if (!error) return std::nullopt;
          return to_dict(*error);
        }));
  m.def("clear_error", wrapped([](int device, int64_t id) {
          stream_at(device, id).clear_error();
        }));
  m.def("reset_device", wrapped([](int device) {
          check_usable(device);
          clear_errors(device);
        }));
  m.def("current_call_site", [] { return current_call_stack_id(); });
  m.def("call_stack", &stack_of);
  m.def("call_line", &call_line);
  // `packages`: the folder holds installed packages, and not torch or this
  // package.
  m.def("add_origin", [](const std::string& folder, bool packages) {
    add_origin(folder, packages ? Origin::kPackage : Origin::kLibrary);
  });
}

}  // namespace npu
