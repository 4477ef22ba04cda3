// The results of an element-wise call whose kind was called before, from its
// sizes alone: no meta function needs to be asked, and no kernel tried.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

#include "csrc/ops/op.h"
#include "csrc/ops/out_spec.h"

namespace npu {

// `known`: the results of another call of the same identity, which its kernel
// has agreed to. Nothing where sizes do not tell: somebody else is to say.
// For a call none of whose arguments overlap.
std::optional<std::vector<OutSpec>> elementwise_results(
    const Op& op, at::ArrayRef<c10::IValue> stack,
    const std::vector<OutSpec>& known);

}  // namespace npu
