// Computes in a wider dtype where CUDA's kernels take a dtype and cpu's do not.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>

#include "csrc/ops/op.h"

namespace npu {

// The dtypes of the first tensor for which that is so, of an operator by its
// full name.
at::ArrayRef<at::ScalarType> widened_dtypes(std::string_view op);

// Where the call has such an operator and dtype, calls it with its tensors in
// the wider dtype, converts its results to the dtype that they have on CUDA,
// and returns true. Each step is launched like any other call; nothing waits.
bool call_widened(const Op& op, torch::jit::Stack& stack);

}  // namespace npu
