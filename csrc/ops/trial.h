// Does the cpu kernel agree with what was inferred for a call?
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/infer.h"
#include "csrc/ops/overlap.h"

namespace npu {

enum class Verdict {
  kAgrees,   // launch as inferred
  kRefuses,  // no kernel for these dtypes: run it, and let it say so
  kDiffers,  // the shapes inferred are wrong
  kUnknown,  // too large to try, or zeros will not do: run it, then learn()
};

// What a verdict depends on besides the operator: dtypes, ranks, which optional
// arguments are there, flags and modes, classes of numbers, how each tensor
// lies in memory, and how they overlap.
using CallKind = c10::SmallVector<int64_t, 48>;
CallKind kind_of(const Op& op, at::ArrayRef<c10::IValue> stack,
                 const Overlap& overlap);

// Runs the kernel on zeros, once per operator and kind of call, so that a
// dtype error is raised by the call itself and a wrong meta kernel is noticed
// before anything is queued. When the two differ, `inferred` is corrected if
// the real shapes are known (kAgrees is returned then); where they differ only
// in the order in which dimensions lie, that is known for calls of every size.
// What is said of an unusual overlap holds for no other call.
Verdict try_on_zeros(const Op& op, at::ArrayRef<c10::IValue> stack,
                     const Overlap& overlap, Inferred& inferred);

// How often try_on_zeros() corrected an operator that has a shape function
// here: what is wrong there costs a run on zeros at each new shape, and no
// result shows it.
uint64_t shape_corrections();

// The shapes of a call of Meta::kNone, of a run on zeros however large they
// are. Nothing when the kernel refuses it.
std::optional<Inferred> infer_by_trial(const Op& op,
                                       at::ArrayRef<c10::IValue> stack,
                                       const Overlap& overlap);

// Remembers the outcome of a call whose verdict was kUnknown. `kind` is that of
// the arguments before it.
void learn(const Op& op, const CallKind& kind, const Inferred& inferred,
           const std::optional<Inferred>& actual);

}  // namespace npu
