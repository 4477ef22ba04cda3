// What the engine asks of a device, and which driver answers in this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_dispatch/include/npu_driver.h"

namespace npu {

// A driver has no more devices: there are arrays with a place for each.
inline constexpr int kMaxDevices = 64;

// The driver that NPU_DRIVER names, "host" when unset: a built-in one, or the
// path of a shared library (it has a '/'), which is loaded for good. It is
// chosen at the first call that succeeds. Throws a runtime_error that says what
// is wrong with the name, the library or its table.
const npu_driver& driver();

// What is wrong with a driver's table, in one sentence; "" when nothing is.
std::string fault_of(const npu_driver& table);

// A built-in driver by name, or null.
const npu_driver* find_driver(const char* name);

// The virtual NPU: kernels run on this machine's cores, on the thread that
// launches them; device memory is host memory.
const npu_driver& host_driver();
// A device that completes every task without running it, which leaves the cost
// of the engine itself. It is also the skeleton for a new driver.
const npu_driver& null_driver();
// A device of stated speed: its tasks take as long as such a device would need
// (docs/plan.md). Nothing is computed, and the host reads zeros.
const npu_driver& emulated_driver();

// Whether the driver in use computes nothing, and the host reads zeros. The
// host writes no values to device memory then.
bool reads_zeros();

// Lives while the calling thread reads or writes device memory itself, outside
// of tasks. Nothing that is queued uses that memory.
class HostAccess {
 public:
  HostAccess() {
    if (driver().host_access) [[unlikely]]
      driver().host_access(1);
  }
  ~HostAccess() {
    if (driver().host_access) [[unlikely]]
      driver().host_access(0);
  }
  HostAccess(const HostAccess&) = delete;
};

// Flags of kernels that the engine sets for itself, and drivers need not know.
// The kernel may wait for other processes, which wait for what this one does
// next.
inline constexpr uint32_t kWaitsForPeers = uint32_t{1} << 31;
// It is a KernelWithDrop (taskqueue/program.h).
inline constexpr uint32_t kHasDrop = uint32_t{1} << 28;
// It runs other kernels, which stand for it where times are told.
inline constexpr uint32_t kRunsKernels = uint32_t{1} << 27;

// Whether the view's length is in the task's words and not in the view.
inline bool is_range(const npu_view& view) { return !view.sizes && view.ndim; }

// The sizes and strides of a view; a range has one size and a stride of one.
inline std::vector<int64_t> sizes_of(const npu_view& view,
                                     const uint64_t* words) {
  if (is_range(view)) return {int64_t(words[view.ndim])};
  return {view.sizes, view.sizes + view.ndim};
}
inline std::vector<int64_t> strides_of(const npu_view& view) {
  if (is_range(view)) return {1};
  return {view.strides, view.strides + view.ndim};
}

}  // namespace npu
