// Whether this thread holds the GIL; and holding it for a block of code.
#pragma once

#include <Python.h>

namespace npu {

// Whether this thread holds the GIL. Unlike PyGILState_Check(), which says yes
// to everybody from the moment that the process has had a subinterpreter.
inline bool holds_gil() {
#if PY_VERSION_HEX >= 0x030D0000
  PyThreadState* const current = PyThreadState_GetUnchecked();
#else
  // Until CPython 3.11 that of whichever thread holds it.
  PyThreadState* const current = _PyThreadState_UncheckedGet();
#endif
  return current && current == PyGILState_GetThisThreadState();
}

// Holds the GIL while it exists, and releases it however its block is left.
class HeldGil {
 public:
  HeldGil() : state_(PyGILState_Ensure()) {}
  ~HeldGil() { PyGILState_Release(state_); }
  HeldGil(const HeldGil&) = delete;

 private:
  const PyGILState_STATE state_;
};

}  // namespace npu
