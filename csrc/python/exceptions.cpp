// Records a Python exception that leaves a task: its kind, text and line.
#include <stdio.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/base/hooks.h"
#include "csrc/python/bindings.h"

namespace py = pybind11;

namespace npu {
namespace {

int code_of(const py::error_already_set& e) {
  if (e.matches(PyExc_IndexError)) return NPU_INDEX_ERROR;
  if (e.matches(PyExc_ValueError)) return NPU_VALUE_ERROR;
  if (e.matches(PyExc_TypeError)) return NPU_TYPE_ERROR;
  if (e.matches(PyExc_NotImplementedError)) return NPU_NOT_IMPLEMENTED;
  const auto is_torchs = [&](const char* name) {
    return e.matches(py::module_::import("torch._C").attr(name));
  };
  if (e.matches(PyExc_MemoryError) || is_torchs("OutOfMemoryError"))
    return NPU_OUT_OF_MEMORY;
  if (is_torchs("_LinAlgError")) return NPU_LINALG_ERROR;
  return NPU_ERROR;
}

// "ValueError: text\n  in f, file.py:12"; without the line where there is none.
std::string text_of(const py::error_already_set& e) {
  std::string text = py::str(e.type().attr("__name__"));
  text += ": " + std::string(py::str(e.value()));
  if (!e.trace()) return text;  // raised in no Python function
  const py::object frames =
      py::module_::import("traceback").attr("extract_tb")(e.trace());
  if (const size_t n = py::len(frames)) {
    const py::object last = frames[py::int_(n - 1)];
    text += "\n  in " + std::string(py::str(last.attr("name"))) + ", " +
            std::string(py::str(last.attr("filename"))) + ":" +
            std::string(py::str(last.attr("lineno")));
  }
  return text;
}

void fill(npu_failure& failure, const py::error_already_set& e) {
  snprintf(failure.text, sizeof failure.text, "%s", text_of(e).c_str());
  failure.code = code_of(e);
}

bool describe_python_exception(npu_failure& failure) {
  try {
    throw;
  } catch (py::error_already_set& e) {
    py::gil_scoped_acquire gil;
    fill(failure, e);
    return true;
  } catch (python_error& e) {
    if (!e.type) return false;  // the exception was not persisted
    py::gil_scoped_acquire gil;
    e.restore();
    fill(failure, py::error_already_set());
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

void install_exception_hook() {
  hooks.describe_exception = describe_python_exception;
}

}  // namespace npu
