// The virtual NPU: kernels run on this machine's cores, on the thread that
// launches them; device memory is host memory.
#pragma once

#include "csrc/driver/driver.h"

namespace npu {

const npu_driver& host_driver();

}  // namespace npu
