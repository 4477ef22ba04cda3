// Exceptions that the layer above throws through kernels.
#pragma once

#include "csrc/driver/driver.h"

namespace npu {

// Rethrows the exception being handled. Fills the record in and returns true
// if it is one of that layer's; lets nothing else but its own failures out.
using ExceptionHook = bool (*)(npu_failure& failure);

// Asked first by describe_exception(). Before the first launch.
void set_exception_hook(ExceptionHook hook);

}  // namespace npu
