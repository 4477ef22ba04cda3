// With which code a program is about to end: SystemExit is known to nobody when
// atexit's functions run.
#include <Python.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "csrc/distributed/job_link.h"
#include "csrc/python/bindings.h"

namespace py = pybind11;

namespace npu {
namespace {

int exit_code = 0;  // guarded by the GIL; without one, the main thread's alone
destructor delete_system_exit = nullptr;

// The code that the interpreter will make of it.
int code_of(PyObject* code) {
  if (!code || code == Py_None) return 0;
  if (!PyLong_Check(code)) return 1;  // a text, which it prints
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(code, &overflow);
  return overflow ? -1 : int(value);
}

// A SystemExit that a program catches is deleted while a function of the
// program runs. One that nobody has caught is deleted by the interpreter, with
// no function below, right before it ends the program.
void note_system_exit(PyObject* self) {
  if (getpid() == pid_t(syscall(SYS_gettid)) && !PyEval_GetFrame())
    exit_code = code_of(reinterpret_cast<PySystemExitObject*>(self)->code);
  delete_system_exit(self);
}

pid_t watched = 0;  // a forked child says nothing in its parent's name

// exit() has the last word: it is not SystemExit alone that has a code.
void tell_jobs(int code, void*) {
  if (getpid() != watched) return;
  JobLink::end_all(code ? "its program ended with exit code " +
                              std::to_string(code & 0xff)
                        : "");
}

void watch_exit() {
  if (delete_system_exit) return;
  auto* const type = reinterpret_cast<PyTypeObject*>(PyExc_SystemExit);
  delete_system_exit = type->tp_dealloc;
  type->tp_dealloc = note_system_exit;
  watched = getpid();
  on_exit(tell_jobs, nullptr);
}

}  // namespace

void bind_exit_code(py::module_& m) {
  m.def("watch_exit", &watch_exit);
  m.def("exit_code", [] { return exit_code; });
}

}  // namespace npu
