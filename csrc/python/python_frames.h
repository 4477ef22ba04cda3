// Reading the interpreter's frames: the one file that knows their layout, and
// the public API for interpreters whose layout it does not know.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

namespace npu {

struct PythonFrame {
  PyObject* code;
  int byte_offset;  // of the instruction being executed, in the code
};

inline constexpr int kMaxPythonFrames = 32;

// Of the calling thread's own state, with or without the GIL: nobody else
// changes a thread's frames. Equal for equal stacks of living code; 0 when no
// Python function is running. Where the layout is known it allocates nothing;
// elsewhere it takes the GIL and makes an object for each frame.
uint64_t hash_python_stack(PyThreadState* thread);

// Innermost first, borrowed references. The GIL is held.
std::vector<PythonFrame> python_frames(PyThreadState* thread);

// The GIL can no longer be had.
bool python_is_finalizing();

}  // namespace npu
