// Which arguments an operator writes, also where its schema does not say so.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <string_view>

#include "csrc/ops/op.h"

namespace npu {

// Whether an operator, named with its overload, has some.
bool has_unmarked_writes(std::string_view full_name);

// How a call with these arguments uses number `i`, as npu_view says it.
uint8_t access_of(const Op::Schema& schema, size_t i,
                  c10::ArrayRef<c10::IValue> arguments);

}  // namespace npu
