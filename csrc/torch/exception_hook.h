// Recognises exceptions that the layer above throws through kernels.
#pragma once

#include "csrc/driver/driver.h"

namespace npu {

// Rethrows the exception that is being handled. If it is one of that layer's,
// fills in the record and returns true. Throws nothing but failures of its own.
using ExceptionHook = bool (*)(npu_failure& failure);

// describe_exception() asks the hook first. To be set before the first launch.
void set_exception_hook(ExceptionHook hook);

}  // namespace npu
