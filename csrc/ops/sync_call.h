// Runs an operator while the caller waits, because its result shapes depend on
// data or cannot be known in advance.
#pragma once

#include <ATen/core/stack.h>

#include "csrc/ops/op.h"

namespace npu {

class Stream;

// Waits for the stream, runs the cpu kernel on this thread over the device's
// memory, and moves new results to the device. Counted as a host wait.
// Exceptions are the cpu kernel's own.
void call_sync(const Op& op, torch::jit::Stack& stack, Stream& stream);

// A new npu tensor with a cpu tensor's contents, readable by tasks of `stream`.
at::Tensor to_device(const at::Tensor& cpu, Stream& stream);

}  // namespace npu
