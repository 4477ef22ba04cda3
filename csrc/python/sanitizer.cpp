// The race sanitizer's switch, and what it asks of Python.
#include "csrc/sanitizer/sanitizer.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/python/bindings.h"
#include "csrc/python/call_stack.h"
#include "csrc/python/def.h"
#include "csrc/python/held_gil.h"
#include "csrc/stats/segment.h"
#include "csrc/torch/host_ops.h"

namespace py = pybind11;
using namespace py::literals;

namespace npu {
namespace {

void stop_sanitizer();

// A Python callable that takes a list of findings, and returns the exception
// with which to refuse the task, or None. Set and called with the GIL.
PyObject* found_ = nullptr;
thread_local PyObject* refusal_ = nullptr;

// By FindingKind.
constexpr const char* kKinds[] = {"write/write",
                                  "read/write",
                                  "allocator-reuse",
                                  "use-after-free",
                                  "host-read",
                                  "host-write",
                                  "unordered-foreign-launch",
                                  "overwritten-result"};

// The frames of a stack as (file, line, function, whether it is the user's):
// the user's first, then packages', then libraries', each innermost first.
py::list frames(uint32_t site) {
  const std::vector<StackFrame> stack = call_stack(site);
  py::list list;
  for (const Origin origin :
       {Origin::kUser, Origin::kPackage, Origin::kLibrary})
    for (const StackFrame& f : stack)
      if (f.origin == origin)
        list.append(py::make_tuple(f.file, f.line, f.function,
                                   origin == Origin::kUser));
  return list;
}

py::dict as_dict(const Side& s) {
  // A program cannot name the streams of a process group.
  const bool of_group =
      s.stream >= int64_t(StreamPool::kComm) * kStreamsPerPool;
  return py::dict("op"_a = s.op, "device"_a = s.device, "stream"_a = s.stream,
                  "of_group"_a = of_group, "task"_a = s.task,
                  "argument"_a = s.argument, "reads"_a = s.reads,
                  "writes"_a = s.writes, "range"_a = py::make_tuple(s.lo, s.hi),
                  "frames"_a = frames(s.site.site),
                  "forward"_a = frames(s.site.forward));
}

py::dict as_dict(const Finding& f) {
  return py::dict(
      "kind"_a = kKinds[int(f.kind)], "first"_a = as_dict(f.first),
      "second"_a = as_dict(f.second), "block"_a = f.block, "bytes"_a = f.bytes,
      "pinned"_a = f.pinned, "device"_a = f.device, "stream"_a = f.stream,
      "allocated"_a = frames(f.alloc_site), "freed"_a = frames(f.free_site),
      "allocated_before"_a = frames(f.old_alloc_site),
      "freed_before"_a = frames(f.old_free_site));
}

bool found(const Finding* findings, size_t count) {
  if (!Py_IsInitialized()) return false;
  py::gil_scoped_acquire gil;
  if (!found_) return false;
  try {
    py::list list;
    for (size_t i = 0; i < count; ++i) list.append(as_dict(findings[i]));
    py::object error = py::handle(found_)(list);
    if (error.is_none()) return false;
    Py_XDECREF(refusal_);
    refusal_ = error.release().ptr();
    return true;
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("npu_dispatch sanitizer");
    return false;
  }
}

[[noreturn]] void raise_refusal() {
  const HeldGil gil;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(refusal_)), refusal_);
  Py_CLEAR(refusal_);
  throw_pending();
}

void adopt_memory(Sanitizer& sanitizer) {
  for (int device = 0; device < device_count(); ++device) {
    if (!allocator_exists(device)) continue;
    for (const SegmentInfo& segment : allocator(device).snapshot())
      for (const BlockInfo& block : segment.blocks)
        if (block.state == BlockInfo::State::kActive)
          sanitizer.adopt(*find_stream(device, segment.stream),
                          reinterpret_cast<void*>(block.address), block.size);
  }
}

// Waits for what is queued already, which the sanitizer has not seen.
void start_sanitizer(py::function callback) {
  stop_sanitizer();
  {
    py::gil_scoped_release no_gil;
    for (int device = 0; initialized() && device < device_count(); ++device)
      synchronize_device(device, WaitReason::kDeviceSync);
  }
  found_ = callback.release().ptr();
  // One for all times that it is turned on, and never destroyed: another thread
  // may be inside one of its calls, from the time before.
  static Sanitizer& sanitizer =
      *new Sanitizer({&found, &raise_refusal, &watch_thread});
  sanitizer.clear();
  adopt_memory(sanitizer);
  watch_host_ops(&sanitizer);
  segment().process.sanitizer_enabled.store(1, std::memory_order_relaxed);
  install_observer(sanitizer, true);
}

void stop_sanitizer() {
  Sanitizer* old = watch_host_ops(nullptr);
  if (!old) return;
  install_observer(*old, false);
  old->clear();
  segment().process.sanitizer_enabled.store(0, std::memory_order_relaxed);
  Py_CLEAR(found_);
}

}  // namespace

void bind_sanitizer(py::module_& m) {
  def(m, "sanitizer_start", &start_sanitizer);
  m.def("sanitizer_stop", &stop_sanitizer);
  def(m, "sanitizer_host_uses", &sanitizer_host_uses);
  def(m, "sanitizer_host_escapes", &sanitizer_host_escapes);
  m.def("sanitizer_watch_thread", &watch_thread_for_good);
  m.def("sanitizer_count_report", [](int device, int kind) {
    segment().devices[device].sanitizer_reports[kind].fetch_add(
        1, std::memory_order_relaxed);
  });
}

}  // namespace npu
