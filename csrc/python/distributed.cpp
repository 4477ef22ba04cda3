// The backend `hccl`, as an object of torch's class.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/distributed/group.h"
#include "csrc/python/bindings.h"
#include "csrc/python/call_stack.h"

namespace py = pybind11;

namespace npu {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// `gloo` is None for a group of one rank. timeout in milliseconds.
BackendPtr make_group(std::optional<BackendPtr> gloo, int rank, int size,
                      std::string name, int64_t timeout) {
  set_site_name(call_line);
  return c10::make_intrusive<HcclGroup>(gloo ? *gloo : BackendPtr(), rank, size,
                                        std::move(name), Milliseconds(timeout));
}

}  // namespace

void bind_distributed(py::module_& m) {
  m.def("make_group", torch::wrap_pybind_function(&make_group));
}

}  // namespace npu
