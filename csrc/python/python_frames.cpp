#include "csrc/python/python_frames.h"

#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030D0000
#error "the layout of the interpreter's frames is known for 3.11 and 3.12"
#endif

namespace npu {

namespace {

const _PyInterpreterFrame* innermost(PyThreadState* thread) {
  return thread->cframe ? thread->cframe->current_frame : nullptr;
}

}  // namespace

int PythonFrame::byte_offset() const {
  auto* c = reinterpret_cast<PyCodeObject*>(code);
  return int(static_cast<const char*>(instruction) -
             reinterpret_cast<const char*>(_PyCode_CODE(c)));
}

uint64_t hash_python_stack(PyThreadState* thread) {
  uint64_t hash = 0;
  int depth = 0;
  for (const _PyInterpreterFrame* f = innermost(thread);
       f && depth < kMaxPythonFrames; f = f->previous, ++depth)
    hash = (hash ^ reinterpret_cast<uint64_t>(f->prev_instr)) *
               0x9E3779B97F4A7C15u +
           (hash >> 29);
  return hash;
}

std::vector<PythonFrame> python_frames(PyThreadState* thread) {
  std::vector<PythonFrame> frames;
  for (const _PyInterpreterFrame* f = innermost(thread);
       f && frames.size() < size_t(kMaxPythonFrames); f = f->previous)
    frames.push_back({reinterpret_cast<PyObject*>(f->f_code), f->prev_instr});
  return frames;
}

}  // namespace npu
