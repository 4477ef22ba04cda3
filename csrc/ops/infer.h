// What a call will return, found out without computing it.
#pragma once

#include <ATen/core/stack.h>

#include <optional>

#include "csrc/ops/plan.h"

namespace npu {

struct Resize {
  at::Tensor tensor;  // an out= argument of the call
  std::vector<int64_t> sizes, strides;
};

struct Inferred {
  std::vector<OutSpec> outs;
  std::vector<Resize> resizes;
};

// Runs the operator's meta kernel on tensors without memory. Nothing when it
// has none, when shapes depend on data, or when the call is wrong: run the
// operator itself then, and let it say what is wrong.
std::optional<Inferred> infer(const Op& op, at::ArrayRef<c10::IValue> stack);

// Whether the new results of a call are what was inferred.
bool as_inferred(const Op& op, const torch::jit::Stack& results,
                 const Inferred& inferred);

// Takes the new results of a call for what should have been inferred.
void correct(const Op& op, const torch::jit::Stack& results,
             Inferred& inferred);

}  // namespace npu
