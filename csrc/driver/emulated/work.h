// What a task has to do, told from its kernel's name and views.
#pragma once

#include <cstdint>

#include "csrc/driver/driver.h"

namespace npu {

struct TaskWork {
  double flops = 0;
  double bytes = 0;  // read and written, each element of a view once
  int itemsize = 4;  // of what is computed with
  bool convolves = false;
  int64_t steps = 0;  // one after another: those of an LSTM layer
};

// Operations as torch.utils.flop_counter counts them, of matrix products,
// convolutions, attention and fused LSTM layers; 0 for the rest.
TaskWork work_of_task(const npu_kernel& kernel, const uint64_t* words);

// Bytes of a view: where it repeats elements (a stride of 0), once.
double bytes_of(const npu_view& view, const uint64_t* words);

}  // namespace npu
