// Computes in float32 those matrix products of float16 and bfloat16 for which
// torch's cpu kernels use no vector instructions.
#pragma once

#include "csrc/ops/frame.h"

namespace npu {

// Whether the machine has what oneDNN needs to compute in bfloat16.
bool has_wide_vectors();

// A task of such an operator tries these first. True: the task is done.
bool run_half_mm_out(Frame& f);
bool run_half_bmm_out(Frame& f);
bool run_half_addmm_out(Frame& f);
bool run_half_baddbmm_out(Frame& f);

}  // namespace npu
