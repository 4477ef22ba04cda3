// The race sanitizer's switch, and what it asks of Python.
#include "csrc/sanitizer/sanitizer.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <mutex>
#include <unordered_set>

#include "csrc/memory/caching_allocator.h"
#include "csrc/ops/kernel_mode.h"
#include "csrc/python/bindings.h"
#include "csrc/python/call_stack.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/engine.h"
#include "csrc/torch/host_use.h"
#include "csrc/torch/tensor.h"

namespace py = pybind11;

namespace npu {
namespace {

void stop_sanitizer();

constexpr auto kModeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

std::atomic<Sanitizer*> sanitizer_{nullptr};
// Python's: takes a list of findings, returns an exception to refuse with, or
// None. Set and called with the GIL.
PyObject* found_ = nullptr;
thread_local PyObject* refusal_ = nullptr;
// Others queue the copies whose memory this thread may use.
thread_local bool stays_ = false;

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
    case FindingKind::kForeign:
      return "unordered-foreign-launch";
  }
  return "";
}

// (file, line, function, user's), the user's first, each innermost first.
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
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(refusal_)), refusal_);
  Py_CLEAR(refusal_);
  python_error error;
  error.persist();
  PyGILState_Release(gil);
  throw error;
}

// From here on this thread's operators pass by look_at_host_op().
void watch_host_ops() {
  if (!c10::impl::tls_is_dispatch_key_included(kModeKey))
    c10::impl::tls_set_dispatch_key_included(kModeKey, true);
}

// Copies between the host and a device touch the host's side when the stream
// gets there, or tell the observer themselves.
bool copies(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::copy_" ||
         schema.name() == "aten::_foreach_copy_";
}

// The pageable memory that queued functions were given. It is kept until they
// are done: nobody says when it is freed, and another tensor's after that.
std::mutex lent_mutex_;  // guards lent_
std::map<const void*, c10::Storage>& lent_ =
    *new std::map<const void*,
                  c10::Storage>;  // never destroyed, as Python may be

void take_back_lent(Sanitizer& sanitizer) {
  std::vector<c10::Storage> done;  // freed without the lock
  std::lock_guard lock(lent_mutex_);
  for (auto at = lent_.begin(); at != lent_.end();) {
    const auto here = at++;
    if (sanitizer.host_pending(here->first)) continue;
    sanitizer.host_freed(here->first);
    done.push_back(std::move(here->second));
    lent_.erase(here);
  }
}

// Operators that change what a tensor is without touching its memory.
bool leaves_memory_alone(const c10::FunctionSchema& schema) {
  static const std::unordered_set<std::string> names = {
      "aten::resize_", "aten::set_", "aten::is_set_to", "aten::record_stream",
      "aten::_has_same_storage_numel"};
  if (names.contains(schema.name())) return true;
  for (const c10::Argument& r : schema.returns())
    if (r.alias_info() && !r.alias_info()->isWrite()) return true;
  return false;
}

// An operator on the device reads 0-dim cpu tensors as it is launched.
void tell_host_op(Sanitizer& sanitizer, const c10::OperatorHandle& op,
                  const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
      schema.name() != "aten::copy_")
    return;
  const size_t n = schema.arguments().size();
  std::vector<npu_view> views;
  std::vector<uint64_t> words;
  bool on_device = false, only_scalars = true;
  const auto add = [&](const at::Tensor& t, bool writes) {
    if (!t.defined()) return;
    if (!t.device().is_cpu()) {
      on_device = true;
      return;
    }
    if (t.layout() != at::kStrided || !t.has_storage() || t.numel() == 0)
      return;
    only_scalars &= t.dim() == 0 && !writes;
    views.push_back({t.sizes().data(), t.strides().data(), uint16_t(t.dim()),
                     uint16_t(t.itemsize()), uint16_t(words.size()),
                     writes ? uint8_t(NPU_WRITE) : uint8_t(NPU_READ)});
    words.push_back(reinterpret_cast<uint64_t>(t.const_data_ptr()));
  };
  for (size_t i = 0; i < n; ++i) {
    const c10::IValue& value = stack[stack.size() - n + i];
    const auto* alias = schema.arguments()[i].alias_info();
    const bool writes = alias && alias->isWrite();
    if (value.isTensor()) {
      add(value.toTensor(), writes);
    } else if (value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorVector()) add(t, writes);
    }
  }
  if (on_device && (!only_scalars || copies(schema))) return;
  if (views.empty() || leaves_memory_alone(schema)) return;
  const std::string full_name = c10::toString(op.operator_name());
  const npu_kernel kernel{nullptr, full_name.c_str(), views.data(),
                          uint32_t(views.size())};
  sanitizer.host_touches(kernel, words.data());
}

// Sees the thread's operators while a copy to or from pinned memory may be
// under way. A view of the memory is no use of it; what reads or writes it is.
void look_at_host_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                     torch::jit::Stack* stack) {
  Sanitizer* sanitizer = sanitizer_.load(std::memory_order_acquire);
  if (sanitizer && sanitizer->pinned_pending()) {
    tell_host_op(*sanitizer, op, *stack);
  } else {
    if (sanitizer) take_back_lent(*sanitizer);
    if (!sanitizer || !stays_)
      c10::impl::tls_set_dispatch_key_included(kModeKey, false);
  }
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kModeKey),
      stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&look_at_host_op>());
}

// `by` uses a tensor's memory without an operator, as numpy and lists do.
void host_uses(const at::Tensor& t, const char* by, bool writes) {
  Sanitizer* sanitizer = sanitizer_.load(std::memory_order_acquire);
  if (!sanitizer || !t.device().is_cpu() || t.layout() != at::kStrided ||
      t.numel() == 0)
    return;
  const npu_view view{
      t.sizes().data(),
      t.strides().data(),
      uint16_t(t.dim()),
      uint16_t(t.itemsize()),
      0,
      writes ? uint8_t(NPU_READ | NPU_WRITE) : uint8_t(NPU_READ)};
  const npu_kernel kernel{nullptr, by, &view, 1};
  const uint64_t word = reinterpret_cast<uint64_t>(t.const_data_ptr());
  sanitizer->host_touches(kernel, &word);
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

// What is queued already was not seen: it is waited for.
void start(py::function callback) {
  stop_sanitizer();
  {
    py::gil_scoped_release no_gil;
    for (int device = 0; initialized() && device < device_count(); ++device)
      synchronize_device(device, WaitReason::kDeviceSync);
  }
  found_ = callback.release().ptr();
  // Never destroyed: another thread may be inside one of its calls.
  auto* made = new Sanitizer({&found, &raise_refusal, &watch_host_ops});
  adopt_memory(*made);
  sanitizer_.store(made, std::memory_order_release);
  segment().process.sanitizer_enabled.store(1, std::memory_order_relaxed);
  install_observer(made);
}

void stop_sanitizer() {
  Sanitizer* old = sanitizer_.exchange(nullptr, std::memory_order_acq_rel);
  if (!old) return;
  if (observer() == old) install_observer(nullptr);
  old->clear();
  {
    std::map<const void*, c10::Storage> freed;
    std::lock_guard lock(lent_mutex_);
    freed.swap(lent_);
  }
  segment().process.sanitizer_enabled.store(0, std::memory_order_relaxed);
  Py_CLEAR(found_);
}

}  // namespace

void lend_to_sanitizer(const std::vector<at::Tensor>& tensors) {
  Sanitizer* sanitizer = sanitizer_.load(std::memory_order_acquire);
  if (!sanitizer) return;
  take_back_lent(*sanitizer);
  std::lock_guard lock(lent_mutex_);
  for (const at::Tensor& t : tensors) {
    if (!t.is_cpu() || !t.has_storage() || t.numel() == 0) continue;
    const c10::Storage& storage = t.storage();
    if (sanitizer->host_lent(storage.data(), storage.nbytes()))
      lent_.emplace(storage.data(), storage);
  }
}

void bind_sanitizer(py::module_& m) {
  m.def("sanitizer_start", torch::wrap_pybind_function(&start));
  m.def("sanitizer_stop", &stop_sanitizer);
  m.def("sanitizer_host_uses", torch::wrap_pybind_function(&host_uses));
  m.def("sanitizer_watch_thread", [] {
    stays_ = true;
    watch_host_ops();
  });
  m.def("sanitizer_count_report", [](int device, int kind) {
    segment().devices[device].sanitizer_reports[kind].fetch_add(
        1, std::memory_order_relaxed);
  });
  m.def("sanitizer_counts", [] {
    Sanitizer* s = sanitizer_.load(std::memory_order_acquire);
    const auto c = s ? s->counts() : Sanitizer::Counts{};
    py::dict d;
    d["tasks"] = c.tasks;
    d["accesses"] = c.accesses;
    d["findings"] = c.findings;
    return d;
  });
}

}  // namespace npu
