// How long a task takes a stated device.
#pragma once

#include <cstdint>

#include "csrc/driver/emulated/model.h"
#include "csrc/driver/emulated/spec.h"
#include "csrc/driver/emulated/work.h"

namespace npu {

// In ns, as DeviceModel::Task has them.
struct TaskCost {
  DeviceModel::Engine engine;
  uint64_t overhead;
  uint64_t work;
};

TaskCost cost_of(const EmulatedSpec& spec, const TaskWork& work);

}  // namespace npu
