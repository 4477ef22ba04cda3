// The names of kernels by which the kind of a task's work is known. They are
// compared by address, since several have the same text.
#pragma once

#include "csrc/stats/layout.h"

namespace npu {

inline constexpr char kHostToDeviceName[] = "memcpy";
inline constexpr char kDeviceToHostName[] = "memcpy";
inline constexpr char kOnDeviceName[] = "memcpy";
inline constexpr char kPluggableFreeName[] = "pluggable allocator's free";
inline constexpr char kHaltName[] = "halt";
inline constexpr char kWaitName[] = "wait";
inline constexpr char kRecordName[] = "record";

// Any thread. Not to be called for every task.
inline Work work_of(const char* name) {
  if (name == kHostToDeviceName) return Work::kHostToDevice;
  if (name == kDeviceToHostName) return Work::kDeviceToHost;
  if (name == kOnDeviceName) return Work::kOnDevice;
  if (name == kPluggableFreeName || name == kHaltName) return Work::kHost;
  if (name == kWaitName || name == kRecordName) return Work::kEvent;
  return Work::kKernel;
}

inline bool is_copy(const char* name) {
  return name == kHostToDeviceName || name == kDeviceToHostName ||
         name == kOnDeviceName;
}

}  // namespace npu
