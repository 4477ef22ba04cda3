// The backend `hccl`, as an object of torch's class.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/base/clock.h"
#include "csrc/distributed/group.h"
#include "csrc/python/bindings.h"
#include "csrc/python/call_stack.h"
#include "csrc/stats/collectives.h"

namespace py = pybind11;

namespace npu {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// `gloo` is None for a group of one rank. `timeout` is in milliseconds. `token`
// and `ranks` are CollectiveGroup's.
BackendPtr make_group(std::optional<BackendPtr> gloo, int rank, int size,
                      std::string name, int64_t timeout,
                      const std::string& token, const std::string& ranks) {
  set_site_name(call_line);
  const int logged =
      log_group(name.c_str(), token.c_str(), ranks.c_str(), rank, size);
  return c10::make_intrusive<HcclGroup>(gloo ? *gloo : BackendPtr(), rank, size,
                                        std::move(name), Milliseconds(timeout),
                                        logged);
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
                        1000, -1, 0, 0, shapes, 2});
    entry.started(now_ns());
    entry.ended(now_ns(), false);
  }
  return double(now_ns() - begin) / calls;
}

}  // namespace

void bind_distributed(py::module_& m) {
  m.def("make_group", torch::wrap_pybind_function(&make_group));
  m.def("describe_group",
        [](const BackendPtr& group, const std::string& description) {
          if (auto* const ours = dynamic_cast<HcclGroup*>(group.get()))
            ours->describe(description);
        });
  m.def("collective_log_cost", &log_cost);
}

}  // namespace npu
