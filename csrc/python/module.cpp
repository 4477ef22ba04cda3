// The extension module.
#include <Python.h>
#include <torch/csrc/Exceptions.h>

#include "csrc/base/hooks.h"
#include "csrc/engine/engine.h"
#include "csrc/host/kernel_threads.h"
#include "csrc/ops/infer.h"
#include "csrc/ops/launch_state.h"
#include "csrc/ops/plan.h"
#include "csrc/ops/third_party.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/python/held_gil.h"
#include "csrc/torch/hooks.h"
#include "csrc/torch/kineto.h"

namespace npu {
namespace {

// Whether it is KeyboardInterrupt, SystemExit or another one that is no
// Exception.
bool is_interrupt_exception(const std::exception& e) {
  if (!Py_IsInitialized()) return false;
  const auto* from_torch = dynamic_cast<const python_error*>(&e);
  const auto* from_pybind =
      dynamic_cast<const pybind11::error_already_set*>(&e);
  if (!from_torch && !from_pybind) return false;
  const HeldGil gil;
  // torch leaves the error pending in the thread until it is persisted.
  PyObject* type = from_pybind        ? from_pybind->type().ptr()
                   : from_torch->type ? from_torch->type
                                      : PyErr_Occurred();
  return type && !PyErr_GivenExceptionMatches(type, PyExc_Exception);
}

// Warns through Python, since torch's own warnings reach Python only from some
// of its calls.
void warn_in_python(const std::string& text) {
  if (!Py_IsInitialized()) return;
  const HeldGil gil;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) < 0) throw_pending();
}

void register_backend() {
  static bool done = false;
  if (done) return;
  done = true;
  register_hooks();
  install_wait_hooks();
  install_thread_limits();
  install_error_hooks();
  install_exception_hook();
  hooks.is_interrupt = is_interrupt_exception;
  hooks.warn = warn_in_python;
  Plan::give_to_graphs();
  LaunchState::read_switches();
  register_profiler();
  register_profiler_stubs();
}

// torch and the GIL states that it and pybind11 ask for know one interpreter.
bool in_main_interpreter() {
  return PyInterpreterState_Get() == PyInterpreterState_Main();
}

constexpr const char* kOneInterpreter =
    "npu_dispatch cannot be used in a subinterpreter, as torch cannot: use the "
    "main interpreter, or another process";

}  // namespace
}  // namespace npu

PYBIND11_MODULE(in_main_interpreter, m) {
  // CPython 3.13 makes the module in the main interpreter whoever imports it,
  // and fills it in the importer's.
  if (!npu::in_main_interpreter())
    throw pybind11::import_error(npu::kOneInterpreter);
  m.doc() = "Bindings of the launch engine; see npu_dispatch/_C.pyi.";
  m.def("register", &npu::register_backend);
  m.def("set_plan_limit", &npu::set_plan_limit);
  npu::bind_aio(m);
  npu::bind_device(m);
  npu::bind_distributed(m);
  npu::bind_empty_strided(m);
  npu::bind_errors(m);
  npu::bind_graph(m);
  npu::bind_flags(m);
  npu::bind_foreign(m);
  npu::bind_memory(m);
  npu::bind_plan(m);
  npu::bind_queue_cost(m);
  npu::bind_replayed(m);
  npu::bind_sanitizer(m);
  npu::bind_schedule(m);
  npu::bind_memory_history(m);
  npu::bind_memory_pools(m);
  npu::bind_shared_memory(m);
  npu::bind_stats(m);
  npu::bind_sync_watch(m);
  npu::bind_watch(m);
  npu::bind_word_kernel(m);
}

// Before CPython 3.13 another interpreter comes here by itself, and making the
// module would wait for ever for a lock that its own thread holds.
extern "C" PYBIND11_EXPORT PyObject* PyInit__C() {
  if (!npu::in_main_interpreter()) {
    PyErr_SetString(PyExc_ImportError, npu::kOneInterpreter);
    return nullptr;
  }
  return PyInit_in_main_interpreter();
}
