// The backend `hccl`, as an object of torch's class.
#include <algorithm>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>

#include "csrc/base/clock.h"
#include "csrc/distributed/core/collectives.h"
#include "csrc/distributed/group.h"
#include "csrc/distributed/job_link.h"
#include "csrc/distributed/own_address.h"
#include "csrc/python/bindings.h"
#include "csrc/python/call_stack.h"
#include "csrc/python/def.h"
#include "csrc/stats/segment.h"

namespace py = pybind11;

namespace npu {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// `gloo` is None for a group of one rank. `timeout` is in milliseconds. The
// other arguments are those of HcclGroup::connect().
BackendPtr make_group(const c10::intrusive_ptr<c10d::Store>& store,
                      std::optional<BackendPtr> gloo, int rank,
                      std::vector<int> global, std::string name,
                      int64_t timeout) {
  set_site_name(call_line);
  return HcclGroup::connect(store, gloo ? *gloo : BackendPtr(), rank,
                            std::move(global), std::move(name),
                            Milliseconds(timeout));
}

// Lets torch.distributed.debug show this process's calls. Its handlers from
// Python are destroyed too late for the interpreter; this one holds none of its
// objects.
void answer_debug_server() {
  using c10d::control_plane::Request, c10d::control_plane::Response;
  const std::string name = "dump_nccl_trace_json";
  const auto names = c10d::control_plane::getHandlerNames();
  if (std::ranges::find(names, name) != names.end()) return;
  c10d::control_plane::registerHandler(
      name, [](const Request& request, Response& response) {
        const py::gil_scoped_acquire gil;
        try {
          const bool active = request.getParam("onlyactive") == "true";
          response.setContent(
              py::module_::import("npu_dispatch.distributed._debug_page")
                  .attr("calls_as_json")(active)
                  .cast<std::string>(),
              "application/json");
          response.setStatus(200);
        } catch (const py::error_already_set& error) {
          response.setContent(error.what(), "text/plain");
          response.setStatus(404);
        }
      });
}

// The job of the default group; see csrc/distributed/job_link.h.
void join_job(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
              int64_t timeout) {
  const py::gil_scoped_release no_gil;  // rank 0 may be another thread
  JobLink::join(*store, rank, size, Milliseconds(timeout));
}
void fail_job(const std::string& failure) {
  const py::gil_scoped_release no_gil;
  JobLink::end_all(failure);
}
std::string job_failure() {
  const auto link = JobLink::current();
  return link ? link->failure() : "";
}
std::optional<std::string> wait_for_job_failure() {
  const py::gil_scoped_release no_gil;
  const auto link = JobLink::current();
  return link ? link->wait_for_end() : std::nullopt;
}

// exit() has the last word on the code that a program ends with.
void tell_job_at_exit() {
  static pid_t watched = 0;  // a forked child says nothing in its parent's name
  const bool first = !watched;
  watched = getpid();
  if (!first) return;
  on_exit(
      [](int code, void*) {
        if (getpid() == watched)
          JobLink::end_all(code ? "its program ended with exit code " +
                                      std::to_string(code & 0xff)
                                : "");
      },
      nullptr);
}

// torch's Python asks for these by name, of a backend that can be split. They
// derive from classes which torch.distributed's import makes known.
void bind_group(py::module_& m) {
  using Options = HcclGroup::Options;
  answer_debug_server();
  py::class_<HcclGroup, c10::intrusive_ptr<HcclGroup>, c10d::Backend>(
      m, "HcclGroup")
      .def_property_readonly("options", &HcclGroup::getBackendOptions)
      .def_property_readonly("store", &HcclGroup::store)
      .def("cancel_coalescing", &HcclGroup::cancel_coalescing)
      // Ranks that are not of a new group have nothing to do for it.
      .def("perform_nocolor_split", [](HcclGroup&, const py::object&) {});
  py::class_<Options, c10::intrusive_ptr<Options>, c10d::Backend::Options>(
      m, "HcclOptions")
      .def("__deepcopy__", [](const Options& options, const py::dict&) {
        return c10::make_intrusive<Options>(options);
      });
}

// The nanoseconds that the flight recorder adds to a collective: the mean over
// `calls` calls of a group of one rank.
double log_cost(int calls) {
  static const int group = log_group("cost", "", "0", 0, 1);
  const int64_t sizes[2] = {64, 64};
  const TensorShape shapes[2] = {{sizes, 2, 6, false, -1},
                                 {sizes, 2, 6, true, -1}};
  const uint64_t begin = now_ns();
  for (int i = 0; i < calls; ++i) {
    LoggedCollective entry =
        log_collective({group, uint64_t(i), false, "all_reduce", 0, now_ns(),
                        1000, -1, 0, 0, 0, shapes, 2});
    entry.started(now_ns());
    entry.ended(now_ns(), 0, 0);
  }
  return double(now_ns() - begin) / calls;
}

}  // namespace

void bind_distributed(py::module_& m) {
  m.def("bind_group", [m]() mutable { bind_group(m); });
  def(m, "make_group", &make_group);
  m.def("describe_group",
        [](const BackendPtr& group, const std::string& description) {
          if (auto* const ours = dynamic_cast<HcclGroup*>(group.get()))
            ours->describe(description);
        });
  def(m, "join_job", &join_job);
  m.def("fail_job", &fail_job);
  m.def("job_failure", &job_failure);
  m.def("tell_job_at_exit", &tell_job_at_exit);
  m.def("wait_for_job_failure", &wait_for_job_failure);
  m.def("end_job_waits", &JobLink::end_waits);
  def(m, "own_address", &own_address);
  m.def("collective_log_cost", &log_cost);
  m.def("note_host_place", [](const std::string& line, bool in_loader) {
    uint64_t ooms = 0;
    // Relaxed: statistics order nothing.
    for (const DeviceBlock& device : segment().devices)
      ooms += device.ooms.load(std::memory_order_relaxed);
    note_place(collective_log().host, line.c_str(), in_loader, ooms, now_ns());
  });
}

}  // namespace npu
