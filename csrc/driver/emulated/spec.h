// What a stated device can do: the numbers of its data sheet, and how long a
// task takes by them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "csrc/driver/emulated/model.h"
#include "csrc/driver/emulated/work.h"

namespace npu {

// Times are in ns and rates per ns: FLOP/ns are GFLOP/s, bytes/ns are GB/s. The
// defaults are those of a fast device, so that the engine is what takes time.
struct EmulatedSpec {
  double memory = 16e9;     // bytes
  double bandwidth = 1000;  // of device memory
  double link = 25;         // each copy engine, to and from the host
  double fp64 = 10'000, fp32 = 20'000, fp16 = 100'000, int8 = 200'000;
  // By Arithmetic: which part of the peak it reaches.
  std::array<double, 3> of_peak{1, 1, 1};
  double launch_ns = 2'000;    // from submit() to the earliest start
  double kernel_ns = 1'000;    // beside the work, of each kernel
  double complete_ns = 2'000;  // from the end to the report
  double copy_ns = 1'000;      // beside the bytes, of each copy of the link
  int concurrency = 16;        // kernels that may be under way at once
  int copy_engines = 2;
  int queue_room = 1024;  // tasks in flight for each queue
  int overcommit = 0;     // 1: programs get more memory than the device has

  // The peak for elements of `itemsize` bytes.
  double flops_of(int itemsize) const;
};

// Reads "key=value" pairs separated by newlines or semicolons. Throws a
// runtime_error that names the key, what was found and what was expected.
EmulatedSpec parse_emulated_spec(const std::string& text);

// What NPU_EMULATED says. Throws as above.
const EmulatedSpec& emulated_spec();

// In ns, as DeviceModel::Job has them.
struct TaskCost {
  DeviceModel::Engine engine;
  uint64_t overhead;
  uint64_t work;
};
TaskCost cost_of(const EmulatedSpec& spec, const TaskWork& work);

}  // namespace npu
