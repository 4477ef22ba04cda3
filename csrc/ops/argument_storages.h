// Whether the tensors of a boxed call end within their storages.
#pragma once

#include <ATen/core/ivalue.h>

#include "csrc/ops/op.h"

namespace npu {

// Whether one does not.
bool argument_ends_beyond_storage(const Op& op,
                                  at::ArrayRef<c10::IValue> arguments);

// Throws an error that names the first one.
void check_argument_storages(const Op& op, at::ArrayRef<c10::IValue> arguments);

}  // namespace npu
