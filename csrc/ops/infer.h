// What a call will return, found out without computing it.
#pragma once

#include <ATen/core/stack.h>

#include <exception>
#include <optional>

#include "csrc/ops/plan.h"

namespace npu {

// The shape an argument has after the call (out= arguments may grow).
struct Written {
  int argument;
  at::DimVector sizes, strides;
  bool operator==(const Written& other) const {
    return argument == other.argument && sizes == other.sizes;
  }
};

struct Inferred {
  std::vector<OutSpec> outs;
  std::vector<Written> written;
  bool operator==(const Inferred&) const = default;
};

// Asks the operator's shape function, or runs its meta kernel on tensors
// without memory. Nothing when it has neither, when shapes depend on data, or
// when the call is wrong: run the operator itself then, and let it say what is
// wrong.
// `overlap`: some of them share their storage (overlap.h).
std::optional<Inferred> infer(const Op& op, at::ArrayRef<c10::IValue> stack,
                              bool overlap);

// A Python meta kernel may be ended by Ctrl-C, which is no statement about the
// call: such an exception is passed on. The layer that knows Python tells which
// those are.
void set_interrupt_test(bool (*is_interrupt)(const std::exception&));
bool is_interrupt(const std::exception& e);

// What should have been inferred, given a call's real results. Nothing for
// results that no plan can hold.
std::optional<Inferred> from_results(const Op& op,
                                     const torch::jit::Stack& results);

}  // namespace npu
