// Dtypes that CUDA's kernels take and cpu's do not: computed in a wider one.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>

#include "csrc/ops/op.h"

namespace npu {

// The dtypes of which that is true of an operator, by its full name: those of
// its first tensor.
at::ArrayRef<at::ScalarType> widened_dtypes(std::string_view op);

// Where the call is of such an operator and dtype: calls it with its tensors in
// the wider dtype, brings its results back to the dtype they have on CUDA, and
// returns true. Each step is launched as any other call; nothing waits.
bool call_widened(const Op& op, torch::jit::Stack& stack);

}  // namespace npu
