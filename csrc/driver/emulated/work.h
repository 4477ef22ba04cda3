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
  kDepthwise,  // a convolution in groups of one channel
  kAttention,
  kRecurrence,  // LSTM layers
};

// How a kernel moves its bytes; devices reach another rate in each way.
enum class Traffic : uint8_t {
  kStream,     // element by element, in order
  kFunction,   // the same, with a function that takes longer than the bytes
  kReduction,  // sums of rows or planes: norms, softmax, pooling
  kGather,     // from or to places that indices say
};

struct TaskWork {
  WorkKind kind = WorkKind::kKernel;
  double flops = 0;
  double bytes = 0;  // read and written, each element of a view once
  int itemsize = 4;  // bytes of an element that is computed with
  Arithmetic arithmetic = Arithmetic::kProducts;
  Traffic traffic = Traffic::kStream;
  int64_t steps = 0;  // time steps of an LSTM layer, which follow one another
  uint64_t sleep_ns = 0;
};

// Counts the operations of matrix products, convolutions, attention and fused
// LSTM layers as torch.utils.flop_counter does; those of other operators are 0.
TaskWork work_of_task(const npu_kernel& kernel, const uint64_t* words);

// The same, of a task of the emulated driver, which knows what is device
// memory: copies from and to other memory cross the link.
TaskWork emulated_work(const npu_kernel& kernel, const uint64_t* words);

}  // namespace npu
