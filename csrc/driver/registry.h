// Which driver this process uses.
#pragma once

#include <string>

#include "csrc/driver/driver.h"

namespace npu {

// The driver that NPU_DRIVER names, "host" when unset: a built-in one, or the
// path of a shared library (it has a '/'), which is loaded for good. It is
// chosen at the first call that succeeds. Throws a runtime_error that says what
// is wrong with the name, the library or its table.
const npu_driver& driver();

// A built-in driver by name, or null.
const npu_driver* find_driver(const char* name);

// What is wrong with a driver's table, in one sentence; "" when nothing is.
std::string fault_of(const npu_driver& table);

}  // namespace npu
