// What cpu's kernels refuse because of a call's arguments alone, and neither
// torch's meta kernels nor the shape functions see.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

namespace npu {

// Whether the kernel refuses the call. It then runs while the caller waits, so
// that the call itself raises what cpu raises.
using Refusal = bool (*)(c10::ArrayRef<c10::IValue> arguments);

// The one of an operator, or null. `name` has its overload, if any, after a
// dot.
Refusal refusal_of(std::string_view name);

}  // namespace npu
