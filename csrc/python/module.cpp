// The extension module, and how its waits treat the interpreter.
#include <Python.h>
#include <torch/csrc/Exceptions.h>

#include "csrc/ops/infer.h"
#include "csrc/python/bindings.h"
#include "csrc/taskqueue/engine.h"
#include "csrc/torch/hooks.h"

namespace npu {
namespace {

// A wait lets go of the GIL when the thread holds it.
void* release_gil() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread()
                                                  : nullptr;
}
void reacquire_gil(void* state) {
  PyEval_RestoreThread(static_cast<PyThreadState*>(state));
}

// Ctrl-C ends a wait: KeyboardInterrupt, or whatever the handler raises.
void check_signals() {
  if (!Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  if (!raised) {
    PyGILState_Release(state);
    return;
  }
  python_error error;
  error.persist();
  PyGILState_Release(state);
  throw error;
}

// KeyboardInterrupt, SystemExit and whatever else is not an Exception.
bool is_interrupt_exception(const std::exception& e) {
  if (!Py_IsInitialized()) return false;
  const auto* from_torch = dynamic_cast<const python_error*>(&e);
  const auto* from_pybind =
      dynamic_cast<const pybind11::error_already_set*>(&e);
  if (!from_torch && !from_pybind) return false;
  const PyGILState_STATE state = PyGILState_Ensure();
  // torch leaves the error pending in the thread until it is persisted.
  PyObject* type = from_pybind        ? from_pybind->type().ptr()
                   : from_torch->type ? from_torch->type
                                      : PyErr_Occurred();
  const bool ends_program =
      type && !PyErr_GivenExceptionMatches(type, PyExc_Exception);
  PyGILState_Release(state);
  return ends_program;
}

void register_backend() {
  static bool done = false;
  if (done) return;
  done = true;
  register_hooks();
  set_host_wait_hooks({release_gil, reacquire_gil, check_signals});
  set_interrupt_test(is_interrupt_exception);
}

}  // namespace
}  // namespace npu

PYBIND11_MODULE(_C, m) {
  m.doc() = "Bindings of the launch engine; see npu_dispatch/_C.pyi.";
  m.attr("TORCH_VERSION") = NPU_TORCH_VERSION;
  m.def("register", &npu::register_backend);
  npu::bind_device(m);
  npu::bind_flags(m);
  npu::bind_jit(m);
  npu::bind_memory(m);
  npu::bind_memory_history(m);
  npu::bind_memory_pools(m);
  npu::bind_stats(m);
}
