// Reading the interpreter's own frames: the one file that knows their layout.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

namespace npu {

struct PythonFrame {
  PyObject* code;
  const void* instruction;  // the one being executed
  int byte_offset() const;
};

inline constexpr int kMaxPythonFrames = 32;

// Of the calling thread's own state, with or without the GIL: nobody else
// changes a thread's frames. Equal for equal stacks of living code; 0 when no
// Python function is running. Allocates nothing.
uint64_t hash_python_stack(PyThreadState* thread);

// Innermost first, borrowed references. The GIL is held.
std::vector<PythonFrame> python_frames(PyThreadState* thread);

}  // namespace npu
