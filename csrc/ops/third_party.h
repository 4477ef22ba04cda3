// Operators that are not torch's own, of which only the schema is known.
#pragma once

#include "csrc/ops/op.h"

namespace npu {

bool is_third_party(const Op& op);

// Warns, once for each third-party operator, that its calls wait, and says what
// to do about it. Called after a call that waited and succeeded.
void warn_that_it_waits(const Op& op);

}  // namespace npu
