// Runs a plan's task in pieces, each of which is the same operator on a part of
// each tensor. Cores that are idle are used as they come (shared_loop.h).
#pragma once

#include <c10/util/FunctionRef.h>

#include <memory>
#include <vector>

#include "csrc/host/kernel_cut.h"
#include "csrc/ops/frame.h"

namespace npu {

using Frames = std::vector<std::unique_ptr<Frame>>;

// `frames`: of the plan's pieces, made here with `make`, which returns one of
// the whole call. False: one thread is to run the call, and nothing was done.
// Only the launcher.
bool run_in_pieces(const Cut& cut, at::ArrayRef<npu_view> views, Frames& frames,
                   const uint64_t* words,
                   c10::function_ref<std::unique_ptr<Frame>()> make);

}  // namespace npu
