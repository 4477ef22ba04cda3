// Does the cpu kernel agree with what was inferred for a call?
#pragma once

#include <ATen/core/stack.h>

#include "csrc/ops/infer.h"

namespace npu {

enum class Verdict {
  kAgrees,   // launch as inferred
  kRefuses,  // no kernel for these dtypes: run it, and let it say so
  kDiffers,  // the shapes inferred are wrong
  kUnknown,  // too large to try, or zeros will not do: run it, then learn()
};

// Runs the kernel on zeros, once per operator, dtypes and flags, so that a
// dtype error is raised by the call itself and a wrong meta kernel is noticed
// before anything is queued. When the two differ, `inferred` is corrected if
// the real shapes are known (kAgrees is returned then).
Verdict try_on_zeros(const Op& op, at::ArrayRef<c10::IValue> stack,
                     Inferred& inferred);

// The shapes of a call of Meta::kNone, of a run on zeros however large they
// are. Nothing when the kernel refuses it.
std::optional<Inferred> infer_by_trial(const Op& op,
                                       at::ArrayRef<c10::IValue> stack);

// Remembers the outcome of a call whose verdict was kUnknown.
void learn(const Op& op, at::ArrayRef<c10::IValue> stack, bool agrees);

}  // namespace npu
