// Queues the tasks of external and interprocess events and of range marks, and
// stops devices.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/engine/switches.h"
#include "csrc/interop/flag.h"
#include "csrc/interop/own_tasks.h"
#include "csrc/observe/observer.h"
#include "csrc/observe/trace.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/deferred_delete.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace py = pybind11;

namespace npu {
namespace {

// The flag of an external event, on a line of its own.
struct alignas(kCacheLine) OwnFlag {
  Flag word{0};
};

// Queues the kernel, without the GIL, because an inline stream runs it here.
// Returns whether a graph that is being captured has taken it. `awaited`:
// tasks wait already for what the kernel does, and are to end if it cannot.
bool submit(int device, int64_t id, const npu_kernel& kernel,
            std::initializer_list<uint64_t> words, bool awaited = false) {
  static const PublishedNames names{kSetFlag.name, kTakeFlag.name,
                                    kReachFlag.name, kSleep.name, kMark.name};
  const uint64_t flag = *words.begin();
  Stream& stream = stream_at(device, id);
  py::gil_scoped_release no_gil;
  const bool runs = !stream.sink();
  if (runs && (&kernel == &kTakeFlag || &kernel == &kReachFlag))
    tell_observers(&Observer::flag_awaited, &stream, flag,
                   &kernel == &kTakeFlag);
  Submission s;
  if (!stream.begin(uint32_t(words.size()), s, call_site())) {
    if (awaited) drop_kernel(kernel, stream, words.begin());
    raise_stream_error(stream);
  }
  s.task->kernel = &kernel;
  std::copy(words.begin(), words.end(), s.words);
  const bool raises = &kernel == &kSetFlag && s.words[1] != 0;
  stream.commit(s);
  if (raises && !stream.sink())
    flag_will_be_set(*reinterpret_cast<const Flag*>(flag), stream,
                     s.position + 1);
  if (runs && raises)
    tell_observers(&Observer::flag_raised, stream, s.position + 1, flag);
  if (runs && &kernel == &kSetFlag && !raises)
    tell_observers(&Observer::flag_lowered, flag);
  const bool captured = stream.sink();
  if (&kernel == &kSleep)
    stream.after_commit(s);
  else
    stream.after_mark(s);
  return captured;
}

bool poll_flag() {
  if (!observed(Observer::kRuns)) return false;
  py::gil_scoped_release no_gil;
  return tell_observers(&Observer::flag_polled);
}

}  // namespace

void bind_flags(py::module_& m) {
  def(m, "flag_up",
      [](int device, int64_t stream, uint64_t word, bool awaited) {
        return submit(device, stream, kSetFlag, {word, kUp, kDropped}, awaited);
      });
  def(m, "flag_down", [](int device, int64_t stream, uint64_t word) {
    return submit(device, stream, kSetFlag, {word, kDown, kDropped});
  });
  def(m, "flag_count",
      [](int device, int64_t stream, uint64_t word, uint64_t number) {
        submit(device, stream, kSetFlag, {word, number, number});
      });
  def(m, "flag_take", [](int device, int64_t stream, uint64_t word) {
    return submit(device, stream, kTakeFlag, {word, uint64_t(device)});
  });
  def(m, "flag_reach",
      [](int device, int64_t stream, uint64_t word, uint64_t number) {
        submit(device, stream, kReachFlag, {word, uint64_t(device), number});
      });
  def(m, "flag_value", [](uint64_t word) {
    poll_flag();
    return reinterpret_cast<Flag*>(word)->value();
  });
  def(m, "flag_host_wait", [](int device, uint64_t word, uint32_t number) {
    Flag& w = *reinterpret_cast<Flag*>(word);
    std::optional<HostWaitForFlag> waits;
    for (;;) {
      uint32_t now;
      if (w.reached(number, now)) {
        tell_observers(&Observer::flag_awaited, nullptr, word, false);
        if (w.dropped(number)) raise_error(dropped_error(w, "interprocess"));
        return;
      }
      {
        if (poll_flag()) continue;
        py::gil_scoped_release no_gil;
        if (!waits) waits.emplace(device);
        w.sleep_while(now);
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
  });
  def(m, "new_flag", [] { return reinterpret_cast<uint64_t>(new OwnFlag); });
  // Not for a flag that a captured graph uses: it may be replayed at any later
  // time.
  def(m, "free_flag", [](uint64_t word) {
    static auto* const left = new DeferredDelete<OwnFlag>;
    std::unique_ptr<OwnFlag> flag(reinterpret_cast<OwnFlag*>(word));
    flag_is_gone(flag->word);
    left->after(
        [](std::vector<StreamPoint>& points) {
          for (Stream* stream : all_streams())
            points.push_back({stream, stream->tail()});
        },
        std::move(flag));
  });
  def(m, "queue_sleep", [](int device, int64_t stream, uint64_t ns) {
    submit(device, stream, kSleep, {ns, uint64_t(device)});
  });
  def(m, "queue_mark",
      [](int device, int64_t stream, uint64_t address, uint64_t range,
         uint32_t name, uint32_t domain, int kind) {
        submit(device, stream, kMark,
               {address, range, uint64_t(domain) << 32 | name,
                uint64_t(device) << 32 | uint64_t(kind), uint64_t(stream)});
      });
  def(m, "host_mark",
      [](int64_t thread, uint64_t range, uint32_t name, uint32_t domain,
         int kind) {
        if (!in_bad_fork())
          trace_mark({range, name, domain, uint8_t(kind), -1, thread});
      });
  def(m, "trace_text", [](const std::string& text) {
    return in_bad_fork() ? kNoTraceName : trace_text(text);
  });
  m.def("trace_wanted", [] { return trace_wanted() && !in_bad_fork(); });
  def(m, "stream_reached", [](int device, int64_t stream, uint64_t number) {
    return stream_at(device, stream).retired().reached(number);
  });
  def(m, "event_sleep_until_done", [](int64_t id) {
    const Event* event = event_at(id);
    if (!event) return;
    check_usable();
    SleepAtOnce no_spin;
    event->synchronize();
    raise_if_failed(*event->stream());
  });

  def(m, "set_strict_pools", &set_strict_pools);
  def(m, "take_owned_stream", [](int device) -> int64_t {
    check_usable(device);
    Stream* stream = take_owned_stream(device);
    TORCH_CHECK(stream, "npu:", device, ": all ", kStreamsPerPool,
                " streams of the runtime are in use; destroy one");
    return stream->id();
  });
  def(m, "give_owned_stream", [](int device, int64_t id) {
    Stream& stream = stream_at(device, id);
    host_wait(stream, stream.tail(), WaitReason::kStreamSync);
    TORCH_CHECK(give_owned_stream(stream), "stream ", id, " of npu:", device,
                " was not made by streamCreate(), or is destroyed already");
  });

  def(m, "stop_device", [](int device) {
    check_usable(device);
    stop_device(device);
  });
  def(m, "restart_device", [](int device) {
    check_usable(device);
    restart_device(device);
  });
  def(m, "stop_waiting_tasks", &stop_waiting_tasks);
}

}  // namespace npu
