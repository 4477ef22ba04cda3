// A program is recorded, and simulated on stated devices.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <optional>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/plan/recorder.h"
#include "csrc/plan/simulation.h"
#include "csrc/python/bindings.h"
#include "csrc/python/call_stack.h"
#include "csrc/python/def.h"
#include "csrc/python/planned_end.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/error.h"

namespace py = pybind11;
using namespace py::literals;

namespace npu {
namespace {

using plan::Entry, plan::Operation, plan::OperationType, plan::Peak;
using plan::PlanStream, plan::Recorder, plan::Recording;

template <typename T>
py::bytes bytes_of(const std::vector<T>& items) {
  return {reinterpret_cast<const char*>(items.data()),
          items.size() * sizeof(T)};
}

std::vector<Entry> entries_of(const py::bytes& bytes) {
  const std::string_view text = bytes;
  TORCH_CHECK(text.size() % sizeof(Entry) == 0, "entries of ", sizeof(Entry),
              " bytes each, not ", text.size(), " bytes");
  const auto* first = reinterpret_cast<const Entry*>(text.data());
  return {first, first + text.size() / sizeof(Entry)};
}

py::dict as_python(const Operation& w) {
  constexpr const char* kTypes[] = {"work", "none", "replay", "collective"};
  constexpr const char* kKinds[] = {"kernel", "copy", "sleep"};
  return py::dict("type"_a = kTypes[int(w.type)], "name"_a = w.name,
                  "kind"_a = w.type == OperationType::kCollective
                                 ? w.kind
                                 : kKinds[int(w.work.kind)],
                  "flops"_a = w.work.flops, "bytes"_a = w.work.bytes,
                  "itemsize"_a = w.work.itemsize, "shapes"_a = w.shapes,
                  "parts"_a = w.parts, "ranks"_a = w.ranks);
}

py::tuple as_python(const PlanStream& s) {
  return py::make_tuple(s.device, s.id);
}
py::tuple as_python(const Peak& peak) {
  return py::make_tuple(peak.device, peak.bytes, call_line(peak.site));
}

template <typename T, std::vector<T> Recording::*kItems>
py::list list_of(const Recording& recording) {
  py::list list;
  for (const T& item : recording.*kItems) list.append(as_python(item));
  return list;
}

// Streams as (device, id, priority), operations as (kind, FLOPs, bytes).
Recording recording_of(
    const std::vector<std::tuple<int, int64_t, int>>& streams,
    const std::vector<std::tuple<std::string, double, double>>& works) {
  Recording p;
  for (const auto& [device, id, priority] : streams)
    p.streams.push_back({device, id, priority});
  for (const auto& [kind, flops, bytes] : works) {
    Operation& w = p.operations.emplace_back();
    w.type = kind == "collective" ? OperationType::kCollective
                                  : OperationType::kWork;
    if (kind == "copy") w.work.kind = WorkKind::kCopy;
    w.work.flops = flops;
    w.work.bytes = bytes;
  }
  return p;
}

// (tasks, waits, steps) as the bytes of their arrays.
py::tuple simulate(const Recording& recording, const py::bytes& entries,
                   const std::string& spec, double host, double work,
                   uint64_t capacity, std::vector<double> stated, int repeats) {
  const std::vector<Entry> fed = entries_of(entries);
  plan::Timeline t;
  {
    py::gil_scoped_release no_gil;
    plan::Simulation simulation(
        recording.streams, recording.operations,
        {parse_emulated_spec(spec), host, work, capacity, std::move(stated)});
    for (int i = 0; i < repeats; ++i)
      for (const Entry& entry : fed) simulation.feed(entry);
    t = simulation.finish();
  }
  return py::make_tuple(bytes_of(t.tasks), bytes_of(t.waits),
                        bytes_of(t.steps));
}

Recorder* recorder_ = nullptr;  // guarded by the GIL; never destroyed
pid_t recorded_process_ = 0;

// Null where none records this process. A forked child is not recorded, and one
// of its parent's threads may have held the recorder's mutex.
Recorder* find_recorder() {
  return recorder_ && getpid() == recorded_process_ ? recorder_ : nullptr;
}

Recorder& recorder() {
  Recorder* const found = find_recorder();
  TORCH_CHECK(found, "no program is being recorded");
  return *found;
}

// The program's clock in ns: the recording's, and this machine's while there is
// none. Whichever it follows goes on from the last value, so that it never runs
// backwards. Guarded by the GIL, which it does not release.
uint64_t program_ns() {
  static const Recorder* followed = nullptr;
  static uint64_t latest = now_ns(), shift = 0;
  Recorder* const found = find_recorder();
  const uint64_t now = found ? found->now() : now_ns();
  if (found != followed) {
    followed = found;
    shift = latest - now;
  }
  latest = now + shift;
  return latest;
}

void start(const std::string& spec, double host) {
  TORCH_CHECK(!find_recorder(), "a program is recorded already");
  program_ns();  // the time until here counts as this machine's
  recorder_ =
      new Recorder({parse_emulated_spec(spec), host, 1, Stream::kCapacity, {}});
  recorded_process_ = getpid();
  install_observer(*recorder_, true);
  program_ns();
}

Recording stop_recording() {
  Recorder& mine = recorder();
  program_ns();  // the time until here counts as the recording's
  install_observer(mine, false);
  recorder_ = nullptr;
  program_ns();
  return mine.take();
}

}  // namespace

std::optional<uint64_t> planned_end(const Event& event) {
  Recorder* const found = find_recorder();
  if (!found) return std::nullopt;
  return found->ended(*event.stream(), event.number());
}

void bind_plan(py::module_& m) {
  py::class_<Recording>(m, "PlanProgram")
      .def(py::init(&recording_of), py::arg("streams"), py::arg("works"))
      .def_property_readonly(
          "entries", [](const Recording& p) { return bytes_of(p.entries); })
      .def_property_readonly("streams",
                             &list_of<PlanStream, &Recording::streams>)
      .def_property_readonly("works",
                             &list_of<Operation, &Recording::operations>)
      .def_property_readonly("peaks", &list_of<Peak, &Recording::peaks>)
      .def("simulate", &simulate, py::arg("entries"), py::arg("spec"),
           py::kw_only(), py::arg("host") = 1.0, py::arg("work") = 1.0,
           py::arg("capacity") = Stream::kCapacity,
           py::arg("stated") = std::vector<double>(), py::arg("repeats") = 1);
  def(m, "plan_start", &start);
  def(m, "plan_stop", &stop_recording);
  m.def("plan_now", &program_ns);
  m.def("plan_size", [] { return recorder().size(); });
  m.def("plan_step", [] { recorder().step(); });
  m.def("plan_pass", [](uint64_t ns) {
    if (Recorder* const found = find_recorder()) found->pass(ns);
  });
  m.def("plan_collective",
        [](std::string kind, uint64_t bytes, std::vector<int64_t> ranks) {
          recorder().collective(std::move(kind), bytes, std::move(ranks));
        });
}

}  // namespace npu
