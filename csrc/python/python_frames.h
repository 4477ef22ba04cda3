// Reads the interpreter's frames. Only this file knows their layout; for
// interpreters whose layout it does not know, it uses the public API.
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

// A hash of the calling thread's stack; `thread` is that thread's own state. It
// works with or without the GIL, because nobody else changes a thread's frames.
// Equal for equal stacks of living code; 0 when no Python function is running.
// Where the layout is known it allocates nothing; elsewhere it takes the GIL
// and makes an object for each frame.
uint64_t hash_python_stack(PyThreadState* thread);

// The frames, innermost first, with borrowed references. The GIL is held.
std::vector<PythonFrame> python_frames(PyThreadState* thread);

// Whether the interpreter is ending, so that the GIL cannot be taken any more.
bool python_is_finalizing();

}  // namespace npu
