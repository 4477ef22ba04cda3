// How many operations emulated devices were given.
#include "csrc/driver/emulated/emulated_driver.h"

#include <torch/csrc/utils/pybind.h>

#include "csrc/python/bindings.h"

namespace py = pybind11;

namespace npu {

void bind_emulated(py::module_& m) {
  m.def("take_emulated_flops", &take_emulated_flops);
}

}  // namespace npu
