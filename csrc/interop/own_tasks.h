// Kernels of the tasks that a program queues without an operator.
#pragma once

#include "csrc/driver/driver.h"

namespace npu {

// `_sleep()`. Words: nanoseconds, device.
extern const npu_kernel kSleep;
// The begin or end of a range of a trace. Words: counter of nanoseconds or 0,
// range, name and domain, kind and device, stream.
extern const npu_kernel kMark;

}  // namespace npu
