// Products of matrices in pieces, for which cores that are idle are used as
// they come (shared_loop.h).
#pragma once

#include <c10/core/ScalarType.h>

#include "csrc/ops/frame.h"

namespace npu {

// Whether a product with so many multiplications is run so.
bool is_shared_product(at::ScalarType dtype, double multiplications);

// A task of such an operator tries these. True: the task is done.
bool run_shared_mm_out(Frame& f);
bool run_shared_bmm_out(Frame& f);
bool run_shared_addmm_out(Frame& f);
bool run_shared_baddbmm_out(Frame& f);

}  // namespace npu
