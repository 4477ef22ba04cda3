// Which driver this process uses.
#pragma once

#include "csrc/driver/driver.h"

namespace npu {

// The driver named by NPU_DRIVER ("host" when unset), chosen at the first
// call. Aborts with the list of known names when there is no such driver.
const npu_driver& driver();

// A built-in driver by name, or null.
const npu_driver* find_driver(const char* name);

}  // namespace npu
