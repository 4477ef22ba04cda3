// Knows which arguments an operator writes, even where its schema does not say
// so.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <string_view>

#include "csrc/ops/op.h"

namespace npu {

// Whether an operator, named with its overload, writes arguments that its
// schema does not mark.
bool has_unmarked_writes(std::string_view full_name);

// How a call with these arguments uses argument `i`: NPU_READ, NPU_WRITE or
// both.
uint8_t access_of(const Op::Schema& schema, size_t i,
                  c10::ArrayRef<c10::IValue> arguments);

}  // namespace npu
