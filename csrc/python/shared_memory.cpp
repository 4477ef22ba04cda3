// Device memory of several processes; see npu_dispatch/npu/_shared_memory.py.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <tuple>

#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/torch/shared_memory.h"

namespace py = pybind11;

namespace npu {

void bind_shared_memory(py::module_& m) {
  m.attr("LEDGER_SLOTS") = kLedgerSlots;
  def(m, "share_memory", [](const at::Tensor& tensor) {
    py::gil_scoped_release no_gil;
    const SharedMemory shared = share_memory(tensor);
    return std::make_tuple(shared.handle, shared.segment_bytes, shared.offset);
  });
  def(m, "open_shared_memory",
      [](int device, int segment, uint64_t segment_bytes, uint64_t offset,
         size_t bytes, int ledger, uint32_t slot) {
        return open_shared_memory(device, segment, {-1, segment_bytes, offset},
                                  bytes, ledger, slot);
      });
  def(m, "received_again", &received_again);
}

}  // namespace npu
