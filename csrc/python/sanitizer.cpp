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

namespace npu {
namespace {

void stop_sanitizer();

// A Python callable that takes a list of findings, and returns the exception
// with which to refuse the task, or None. Set and called with the GIL.
PyObject* found_ = nullptr;
thread_local PyObject* refusal_ = nullptr;

const char* name(FindingKind kind) {
  switch (kind) {
    case FindingKind::kWriteWrite:
      return "write/write";
    case FindingKind::kReadWrite:
      return "read/write";
    case FindingKind::kReuse:
      return "allocator-reuse";
    case FindingKind::kUseAfterFree:
      return "use-after-free";
    case FindingKind::kHostRead:
      return "host-read";
    case FindingKind::kHostWrite:
      return "host-write";
    case FindingKind::kUnorderedForeignLaunch:
      return "unordered-foreign-launch";
    case FindingKind::kOverwrittenResult:
      return "overwritten-result";
  }
  return "";
}

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
  py::dict d;
  d["op"] = s.op;
  d["device"] = s.device;
  d["stream"] = s.stream;
  // A program cannot name the streams of a process group.
  d["of_group"] = s.stream >= int64_t(StreamPool::kComm) * kStreamsPerPool;
  d["task"] = s.task;
  d["argument"] = s.argument;
  d["reads"] = s.reads;
  d["writes"] = s.writes;
  d["range"] = py::make_tuple(s.lo, s.hi);
  d["frames"] = frames(s.site.site);
  d["forward"] = frames(s.site.forward);
  return d;
}

py::dict as_dict(const Finding& f) {
  py::dict d;
  d["kind"] = name(f.kind);
  d["first"] = as_dict(f.first);
  d["second"] = as_dict(f.second);
  d["block"] = f.block;
  d["bytes"] = f.bytes;
  d["pinned"] = f.pinned;
  d["device"] = f.device;
  d["stream"] = f.stream;
  d["allocated"] = frames(f.alloc_site);
  d["freed"] = frames(f.free_site);
  d["allocated_before"] = frames(f.old_alloc_site);
  d["freed_before"] = frames(f.old_free_site);
  return d;
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
  python_error error;
  error.persist();
  throw error;
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
  m.def("sanitizer_counts", [] {
    Sanitizer* s = host_ops_sanitizer();
    const auto c = s ? s->counts() : Sanitizer::Counts{};
    py::dict d;
    d["tasks"] = c.tasks;
    d["accesses"] = c.accesses;
    d["findings"] = c.findings;
    return d;
  });
}

}  // namespace npu
