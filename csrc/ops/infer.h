// Finds out what a call will return, without computing it.
#pragma once

#include <ATen/core/stack.h>

#include <exception>
#include <optional>

#include "csrc/ops/overlap.h"
#include "csrc/ops/plan.h"

namespace npu {

// The shape that an argument has after the call (out= arguments may grow).
struct Written {
  int argument;
  at::DimVector sizes, strides;
};

struct Inferred {
  std::vector<OutSpec> outs;
  std::vector<Written> written;
};

// Asks the operator's shape function, or runs its meta kernel on tensors
// without memory, or, for Meta::kNone, its kernel on zeros. Nothing when there
// is neither, when shapes depend on data, or when the call is wrong: the caller
// then runs the operator itself, which reports what is wrong.
std::optional<Inferred> infer(const Op& op, at::ArrayRef<c10::IValue> stack,
                              Overlap overlap);

// Ctrl-C may end a Python meta kernel, which does not mean that the call is
// wrong, so such an exception is passed on.
bool is_interrupt(const std::exception& e);

// What should have been inferred, according to a call's real results. Nothing
// for results that no plan can describe.
std::optional<Inferred> from_results(const Op& op,
                                     const torch::jit::Stack& results);

}  // namespace npu
