// Runs a program under a chosen interleaving, for npu_dispatch/testing.py.
#include "csrc/sanitizer/schedule.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/engine/engine.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/torch/error.h"

namespace py = pybind11;

namespace npu {
namespace {

Schedule* schedule_ = nullptr;  // guarded by the GIL

void start_schedule(uint64_t seed, int changes, uint64_t length, bool poison) {
  check_usable();
  TORCH_CHECK(!schedule_,
              "a schedule is being run already: npu_dispatch."
              "testing.explore() cannot be called from inside another");
  {
    py::gil_scoped_release no_gil;
    for (Stream* stream : all_streams())
      host_wait(*stream, stream->tail(), WaitReason::kDeviceSync);
  }
  // Never destroyed: another thread may be inside one of its calls.
  schedule_ = new Schedule({seed, changes, length, poison});
  install_observer(*schedule_, true);
  py::gil_scoped_release no_gil;
  for (Stream* stream : all_streams()) stream->stop();
}

// Runs what is left; returns (steps, trace).
py::tuple stop() {
  TORCH_CHECK(schedule_, "no schedule is being run");
  Schedule* schedule = std::exchange(schedule_, nullptr);
  {
    py::gil_scoped_release no_gil;
    schedule->drain();
  }
  install_observer(*schedule, false);
  return py::make_tuple(schedule->steps(), schedule->trace());
}

}  // namespace

void bind_schedule(py::module_& m) {
  def(m, "schedule_start", &start_schedule);
  def(m, "schedule_stop", &stop);
}

}  // namespace npu
