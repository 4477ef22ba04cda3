// Device memory of several processes; see npu_dispatch/npu/memory/shared.py.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <tuple>

#include "csrc/base/hooks.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/shared_memory.h"

namespace py = pybind11;

namespace npu {
namespace {

// Frees the memory that other processes have given back; says whether there was
// any. It never throws, since its caller is about to report a lack of memory.
bool reclaim() {
  py::gil_scoped_acquire gil;
  const auto name = py::str("npu_dispatch.npu.memory.shared");
  const py::dict modules = py::module_::import("sys").attr("modules");
  if (!modules.contains(name)) return false;  // nothing was sent
  try {
    return py::object(modules[name]).attr("collect")().cast<bool>();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("npu_dispatch: memory of other processes");
    return false;
  }
}

}  // namespace

void bind_shared_memory(py::module_& m) {
  m.attr("LEDGER_SLOTS") = kLedgerSlots;
  hooks.reclaim = reclaim;
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
