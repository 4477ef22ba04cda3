// Matrix products of float16 and bfloat16 that torch's cpu kernels compute
// element by element, without vectors: through float32 instead.
#pragma once

#include "csrc/ops/frame.h"

namespace npu {

// What a task of such an operator does first. True: it is done.
bool run_half_mm_out(Frame& f);
bool run_half_bmm_out(Frame& f);
bool run_half_addmm_out(Frame& f);
bool run_half_baddbmm_out(Frame& f);

}  // namespace npu
