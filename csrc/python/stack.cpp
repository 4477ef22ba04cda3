#include "csrc/python/stack.h"

#include <Python.h>

#include <mutex>
#include <vector>

// The interpreter's own frames: walking them costs a few ns each, where the
// public functions make an object of each.
#if PY_VERSION_HEX < 0x030C0000
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#define NPU_WALKS_FRAMES 1
#else
#define NPU_WALKS_FRAMES 0
#endif

namespace npu {
namespace {

// Deep enough for a module inside a few others inside a training loop.
constexpr int kMostFrames = 32;

struct Frame {
  PyCodeObject* code;
  int offset;
  bool operator==(const Frame&) const = default;
};

struct Frames {
  Frame at[kMostFrames];
  int count = 0;
  uint64_t hash = 0x9e3779b97f4a7c15;

  void add(PyCodeObject* code, int offset) {
    at[count++] = {code, offset};
    hash =
        (hash ^ uint64_t(code) ^ uint64_t(offset) << 40) * 0xff51afd7ed558ccd;
    hash ^= hash >> 29;
  }
};

// The stacks seen so far. Guarded by a mutex that is never held while the GIL
// is waited for.
class Stacks {
 public:
  uint32_t find(const Frames& frames) {
    std::lock_guard lock(mutex_);
    return find_locked(frames);
  }

  // With the GIL: the codes are kept alive from here on.
  uint32_t add(const Frames& frames) {
    for (int i = 0; i < frames.count; ++i) Py_INCREF(frames.at[i].code);
    {
      std::lock_guard lock(mutex_);
      const uint32_t known = find_locked(frames);
      if (!known) {
        entries_.push_back(
            {frames.hash, {frames.at, frames.at + frames.count}});
        if (2 * entries_.size() > slots_.size()) grow();
        place(uint32_t(entries_.size()));
        return uint32_t(entries_.size());
      }
    }
    for (int i = 0; i < frames.count; ++i) Py_DECREF(frames.at[i].code);
    return find(frames);
  }

  std::vector<Frame> get(uint32_t stack) {
    std::lock_guard lock(mutex_);
    if (stack == 0 || stack > entries_.size()) return {};
    return entries_[stack - 1].frames;
  }

  // With the GIL.
  void clear() {
    std::vector<Entry> old;
    {
      std::lock_guard lock(mutex_);
      old.swap(entries_);
      slots_.assign(1024, 0);
    }
    for (const Entry& entry : old)
      for (const Frame& frame : entry.frames) Py_DECREF(frame.code);
  }

 private:
  struct Entry {
    uint64_t hash;
    std::vector<Frame> frames;
  };

  uint32_t find_locked(const Frames& frames) const {
    const size_t mask = slots_.size() - 1;
    for (size_t i = frames.hash & mask; slots_[i]; i = (i + 1) & mask) {
      const Entry& entry = entries_[slots_[i] - 1];
      if (entry.hash == frames.hash &&
          int(entry.frames.size()) == frames.count &&
          std::equal(entry.frames.begin(), entry.frames.end(), frames.at))
        return slots_[i];
    }
    return 0;
  }
  void place(uint32_t stack) {
    const size_t mask = slots_.size() - 1;
    size_t i = entries_[stack - 1].hash & mask;
    while (slots_[i]) i = (i + 1) & mask;
    slots_[i] = stack;
  }
  void grow() {
    slots_.assign(2 * slots_.size(), 0);
    for (uint32_t i = 1; i < entries_.size(); ++i) place(i);
  }

  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(1024);
};

Stacks& stacks() {
  static Stacks* const instance = new Stacks;
  return *instance;
}

// The thread's own frames do not change while it is in here, and they keep
// their code objects alive: so this needs no GIL.
void walk(PyThreadState* thread, Frames& frames) {
#if NPU_WALKS_FRAMES
  for (_PyInterpreterFrame* f = thread->cframe->current_frame;
       f && frames.count < kMostFrames; f = f->previous) {
    if (_PyFrame_IsIncomplete(f)) continue;
    frames.add(f->f_code,
               _PyInterpreterFrame_LASTI(f) * int(sizeof(_Py_CODEUNIT)));
  }
#else
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyFrameObject* f = PyThreadState_GetFrame(thread);
  while (f && frames.count < kMostFrames) {
    PyCodeObject* code = PyFrame_GetCode(f);
    frames.add(code, PyFrame_GetLasti(f));
    Py_DECREF(code);  // its frame keeps it
    PyFrameObject* back = PyFrame_GetBack(f);
    Py_DECREF(f);
    f = back;
  }
  Py_XDECREF(f);
  PyGILState_Release(gil);
#endif
}

}  // namespace

uint32_t capture_stack() {
  if (!Py_IsInitialized()) return 0;
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (!thread) return 0;
  Frames frames;
  walk(thread, frames);
  if (frames.count == 0) return 0;
  if (const uint32_t known = stacks().find(frames)) [[likely]]
    return known;
  const PyGILState_STATE gil = PyGILState_Ensure();
  const uint32_t stack = stacks().add(frames);
  PyGILState_Release(gil);
  return stack;
}

pybind11::list stack_frames(uint32_t stack) {
  pybind11::list list;
  for (const Frame& frame : stacks().get(stack))
    list.append(
        pybind11::make_tuple(pybind11::reinterpret_borrow<pybind11::object>(
                                 reinterpret_cast<PyObject*>(frame.code)),
                             frame.offset));
  return list;
}

void forget_stacks() { stacks().clear(); }

}  // namespace npu
