// Finds out whether the cpu kernel agrees with what was inferred for a call.
#pragma once

#include <ATen/core/stack.h>

#include "csrc/ops/identity.h"
#include "csrc/ops/infer.h"
#include "csrc/ops/overlap.h"

namespace npu {

enum class Verdict {
  kAgrees,   // launch as inferred
  kRefuses,  // no kernel for these dtypes: run it, and it will say so
  kDiffers,  // the inferred shapes are wrong
  kUnknown,  // too large to try, or neither zeros nor ones work: run it, then
             // remember_verdict()
};

// Runs the kernel on zeros, and on ones where it refuses zeros; once for each
// identity. So the call itself raises a dtype error, and a wrong meta kernel is
// noticed before anything is queued. When kernel and inference differ,
// `inferred` is corrected if the real shapes are known, and kAgrees is
// returned. Where they differ only in the order of dimensions in memory, the
// verdict holds for calls of every size. The verdict on an unusual overlap
// holds for no other call.
Verdict try_kernel(const Op& op, at::ArrayRef<c10::IValue> stack,
                   const Identity& identity, Overlap overlap,
                   Inferred& inferred);

// Sets from how many elements on a call is large, and tried as a smaller one;
// returns the previous limit. Any thread.
int64_t set_trial_limit(int64_t elements);

// How often try_kernel() corrected an operator that has a shape function
// here. A wrong shape function costs a run on zeros at each new shape, which no
// result shows.
uint64_t shape_corrections();

// The shapes of a call of Meta::kNone, found by a run on zeros, however large
// these are. Nothing when the kernel refuses the call.
std::optional<Inferred> infer_by_trial(const Op& op,
                                       at::ArrayRef<c10::IValue> stack,
                                       Overlap overlap);

// Raises what the kernel refuses of a call on zeros: in a capture, where nobody
// may wait, that tells what is wrong with it.
void raise_if_refused(const Op& op, at::ArrayRef<c10::IValue> stack,
                      Overlap overlap);

// Remembers the outcome of a call whose verdict was kUnknown. `identity` is
// that of the arguments before the call.
void remember_verdict(const Identity& identity, const Inferred& inferred,
                      const std::optional<Inferred>& actual);

}  // namespace npu
