// What an emulated device was given.
#include <torch/csrc/utils/pybind.h>

#include "csrc/driver/emulated/totals.h"
#include "csrc/python/bindings.h"

namespace py = pybind11;

namespace npu {

void bind_emulated(py::module_& m) {
  m.def("emulated_totals", [] {
    py::list rows;
    for (const EmulatedTotal& t : emulated_totals())
      rows.append(
          py::make_tuple(t.name, t.count, t.flops, t.bytes, t.ns, t.flops_ns));
    return rows;
  });
  m.def("forget_emulated_totals", &forget_emulated_totals);
}

}  // namespace npu
