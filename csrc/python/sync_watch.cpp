// Lets host waits release the GIL and obey Ctrl-C, and tells Python about them.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <mutex>

#include "csrc/base/hooks.h"
#include "csrc/python/bindings.h"
#include "csrc/python/call_stack.h"
#include "csrc/python/def.h"
#include "csrc/python/held_gil.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/error.h"

namespace py = pybind11;

namespace npu {
namespace {

// Releases the GIL for a wait, where the thread holds it.
void* release_gil() {
  return Py_IsInitialized() && holds_gil() ? PyEval_SaveThread() : nullptr;
}
void reacquire_gil(void* state) {
  PyEval_RestoreThread(static_cast<PyThreadState*>(state));
}

// Ctrl-C ends a wait: KeyboardInterrupt, or whatever the handler raises.
void check_signals() {
  if (!Py_IsInitialized()) return;
  const HeldGil gil;
  if (PyErr_CheckSignals()) throw_pending();
}

const char* name_of(WaitReason reason) {
  constexpr const char* kNames[] = {
      "item",     "copy",       "stream_sync", "event_sync", "device_sync",
      "operator", "allocator",  "exit",        "h2d",        "graph",
      "dealloc",  "raw_handle", "full_queue",  "staged_copy"};
  static_assert(std::size(kNames) == size_t(kStagedCopy) + 1);
  return kNames[int(reason)];
}

// Where the host has waited: by reason and call stack.
struct Total {
  uint64_t count, ns;
};
struct Report {
  std::mutex mutex;
  std::map<std::pair<WaitReason, uint32_t>, Total> totals;
};
Report& report() {
  static Report* const instance = new Report;
  return *instance;
}

// Python functions that are called with each wait while waits are watched.
// Never destroyed.
struct Watchers {
  py::object before, after;
};
Watchers* watchers = nullptr;

void call_watcher(const py::object& watcher, const HostWait& w) {
  try {
    watcher(name_of(w.reason), w.op ? w.op : "", w.stream.device(),
            w.stream.id(), w.pending, w.ns);
  } catch (py::error_already_set& e) {
    // torch's layers expect Python errors in this form.
    e.restore();
    throw_pending();
  }
}

void before_wait(const HostWait& w) {
  if (!Py_IsInitialized() || !watchers) return;
  py::gil_scoped_acquire gil;
  call_watcher(watchers->before, w);
}

void after_wait(const HostWait& w) {
  if (!Py_IsInitialized()) return;
  const uint32_t site = current_call_stack_id();
  if (w.ns) {
    std::lock_guard lock(report().mutex);
    Total& total = report().totals[{w.reason, site}];
    ++total.count;
    total.ns += w.ns;
  }
  if (!watchers || !host_waits_are_watched()) return;
  py::gil_scoped_acquire gil;
  call_watcher(watchers->after, w);
}

}  // namespace

void install_wait_hooks() {
  hooks.release = release_gil;
  hooks.reacquire = reacquire_gil;
  hooks.check_interrupt = check_signals;
  hooks.before_wait = before_wait;
  hooks.after_wait = after_wait;
  hooks.launched = raise_if_failed;
}

void bind_sync_watch(py::module_& m) {
  m.def("set_sync_watchers", [](py::object before, py::object after) {
    watchers = new Watchers{std::move(before), std::move(after)};
  });
  m.def("watch_syncs", &watch_host_waits);
  m.def("sync_report", [] {
    py::list rows;
    std::lock_guard lock(report().mutex);
    for (const auto& [key, total] : report().totals)
      rows.append(py::make_tuple(name_of(key.first), key.second, total.count,
                                 total.ns));
    return rows;
  });
  m.def("count_sync_violation", [](int device, bool refused, int reason) {
    segment().devices[device].sync_violations[refused][reason].fetch_add(
        1, std::memory_order_relaxed);
  });
  m.def("reset_sync_report", [] {
    std::lock_guard lock(report().mutex);
    report().totals.clear();
  });
}

}  // namespace npu
