// Whether the tensors of a boxed call end within their storages.
#pragma once

#include <ATen/core/ivalue.h>

#include "csrc/ops/op.h"

namespace npu {

// Whether one does not, also where it is a part of a sparse or nested tensor.
// `raises`: throws an error that names the first one.
bool argument_ends_beyond_storage(const Op& op,
                                  at::ArrayRef<c10::IValue> arguments,
                                  bool raises = false);

}  // namespace npu
