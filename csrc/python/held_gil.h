// Holds the GIL while it exists, and releases it however its block is left.
#pragma once

#include <Python.h>

namespace npu {

class HeldGil {
 public:
  HeldGil() : state_(PyGILState_Ensure()) {}
  ~HeldGil() { PyGILState_Release(state_); }
  HeldGil(const HeldGil&) = delete;

 private:
  const PyGILState_STATE state_;
};

}  // namespace npu
