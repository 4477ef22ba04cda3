#include "csrc/python/python_frames.h"
#include "csrc/python/held_gil.h"

// The layout of frames is known for Python 3.11 to 3.13. NPU_PUBLIC_FRAMES
// chooses the public API there, too; its test is built so.
#if !defined(NPU_PUBLIC_FRAMES) && PY_VERSION_HEX < 0x030E0000
#define NPU_KNOWN_FRAMES 1
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#else
#define NPU_KNOWN_FRAMES 0
#include <frameobject.h>
#endif

namespace npu {

namespace {

uint64_t mix(uint64_t hash, uint64_t word) {
  return (hash ^ word) * 0x9E3779B97F4A7C15u + (hash >> 29);
}

}  // namespace

bool python_is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

#if NPU_KNOWN_FRAMES

namespace {

#if PY_VERSION_HEX >= 0x030D0000
const _PyInterpreterFrame* innermost(PyThreadState* thread) {
  return thread->current_frame;
}
PyCodeObject* code_of(const _PyInterpreterFrame* f) {
  return reinterpret_cast<PyCodeObject*>(f->f_executable);
}
const char* instruction_of(const _PyInterpreterFrame* f) {
  return reinterpret_cast<const char*>(f->instr_ptr);
}
#else
const _PyInterpreterFrame* innermost(PyThreadState* thread) {
  return thread->cframe ? thread->cframe->current_frame : nullptr;
}
PyCodeObject* code_of(const _PyInterpreterFrame* f) { return f->f_code; }
const char* instruction_of(const _PyInterpreterFrame* f) {
  return reinterpret_cast<const char*>(f->prev_instr);
}
#endif

// Whether it is a frame that the interpreter puts between a call from C and the
// called function, or between a class and its __init__(): it belongs to no
// Python function, and its code lacks most of what code has.
bool is_shim([[maybe_unused]] const _PyInterpreterFrame* f) {
#if PY_VERSION_HEX >= 0x030D0000
  return f->owner == FRAME_OWNED_BY_CSTACK || f->f_funcobj == Py_None;
#elif PY_VERSION_HEX >= 0x030C0000
  return f->owner == FRAME_OWNED_BY_CSTACK;
#else
  return false;
#endif
}

}  // namespace

[[gnu::hot]] uint64_t hash_python_stack(PyThreadState* thread) {
  uint64_t hash = 0;
  int depth = 0;
  for (const _PyInterpreterFrame* f = innermost(thread);
       f && depth < kMaxPythonFrames; f = f->previous, ++depth)
    hash = mix(hash, reinterpret_cast<uint64_t>(instruction_of(f)));
  return hash;
}

std::vector<PythonFrame> python_frames(PyThreadState* thread) {
  std::vector<PythonFrame> frames;
  for (const _PyInterpreterFrame* f = innermost(thread);
       f && frames.size() < size_t(kMaxPythonFrames); f = f->previous) {
    if (is_shim(f)) continue;
    PyCodeObject* const code = code_of(f);
    const auto* const begin = reinterpret_cast<const char*>(_PyCode_CODE(code));
    frames.push_back(
        {reinterpret_cast<PyObject*>(code), int(instruction_of(f) - begin)});
  }
  return frames;
}

#else

namespace {

// Calls visit(code, offset in bytes) for each frame, innermost first, until it
// returns false. The GIL is held. The public API makes an object for each
// frame, so this allocates.
template <class Visit>
void walk(PyThreadState* thread, const Visit& visit) {
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  while (frame) {
    // The running function keeps its code alive after this reference is gone.
    PyCodeObject* const code = PyFrame_GetCode(frame);
    Py_DECREF(code);
    PyFrameObject* const outer =
        visit(code, PyFrame_GetLasti(frame)) ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = outer;
  }
}

}  // namespace

uint64_t hash_python_stack(PyThreadState* thread) {
  // A thread that has released the GIL must not touch objects.
  if (!holds_gil()) {
    if (python_is_finalizing()) return 0;  // the GIL cannot be taken any more
    const HeldGil gil;
    return hash_python_stack(thread);
  }
  uint64_t hash = 0;
  int depth = 0;
  walk(thread, [&](PyCodeObject* code, int offset) {
    hash = mix(hash, reinterpret_cast<uint64_t>(code) + uint64_t(offset));
    return ++depth < kMaxPythonFrames;
  });
  return hash;
}

std::vector<PythonFrame> python_frames(PyThreadState* thread) {
  std::vector<PythonFrame> frames;
  walk(thread, [&](PyCodeObject* code, int offset) {
    frames.push_back({reinterpret_cast<PyObject*>(code), offset});
    return frames.size() < size_t(kMaxPythonFrames);
  });
  return frames;
}

#endif

}  // namespace npu
