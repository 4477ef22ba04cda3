// Operators that are not torch's own: what is known of them is their schema.
#pragma once

#include "csrc/ops/op.h"

namespace npu {

bool is_third_party(const Op& op);

// Says, once per operator of somebody else's, that its calls wait, and what to
// do about it. After a call that waited and succeeded.
void tell_that_it_waits(const Op& op);

// How it is said; as torch's own warnings by default.
void set_warn_hook(void (*warn)(const std::string& text));

}  // namespace npu
