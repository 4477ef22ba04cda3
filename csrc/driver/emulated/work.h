// How much a task has to do, found from its kernel's name and views.
#pragma once

#include <cstdint>

#include "csrc/driver/driver.h"

namespace npu {

enum class WorkKind : uint8_t {
  kKernel,
  kCopy,   // over the link: `bytes` of them
  kSleep,  // for `sleep_ns`, beside which others may run
};

// What the operations are; devices reach another part of their peak with each.
enum class Arithmetic : uint8_t {
  kProducts,  // of matrices
  kConvolution,
  kRecurrence,  // LSTM layers
};

struct TaskWork {
  WorkKind kind = WorkKind::kKernel;
  double flops = 0;
  double bytes = 0;  // read and written, each element of a view once
  int itemsize = 4;  // bytes of an element that is computed with
  Arithmetic arithmetic = Arithmetic::kProducts;
  uint64_t sleep_ns = 0;
};

// Counts the operations of matrix products, convolutions, attention and fused
// LSTM layers as torch.utils.flop_counter does; those of other operators are 0.
TaskWork work_of_task(const npu_kernel& kernel, const uint64_t* words);

// The same, of a task of the emulated driver, which knows what is device
// memory: copies from and to other memory cross the link.
TaskWork emulated_work(const npu_kernel& kernel, const uint64_t* words);

}  // namespace npu
