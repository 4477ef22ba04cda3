// The extension module, and how its waits treat the interpreter.
#include <Python.h>
#include <torch/csrc/Exceptions.h>

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

void register_backend() {
  static bool done = false;
  if (done) return;
  done = true;
  register_hooks();
  set_host_wait_hooks({release_gil, reacquire_gil, check_signals});
}

}  // namespace
}  // namespace npu

PYBIND11_MODULE(_C, m) {
  m.doc() = "Bindings of the launch engine; see npu_dispatch/_C.pyi.";
  m.attr("TORCH_VERSION") = NPU_TORCH_VERSION;
  m.def("register", &npu::register_backend);
  npu::bind_device(m);
  npu::bind_memory(m);
  npu::bind_stats(m);
}
