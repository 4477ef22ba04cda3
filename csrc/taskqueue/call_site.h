// Who launches a task: the ids of call stacks that the layer above knows.
#pragma once

#include <cstdint>

#include "csrc/base/hooks.h"

namespace npu {

struct CallSite {
  uint32_t site = 0;     // the calling thread's stack; 0: not known
  uint32_t forward = 0;  // in backward: that of the forward call; else 0
};

// Of a launch that the calling thread is about to make.
inline CallSite call_site() {
  return hooks.call_site ? hooks.call_site() : CallSite{};
}
// The calling thread's stack, of whatever is not a launch.
inline uint32_t call_stack_id() {
  return hooks.call_stack ? hooks.call_stack() : 0;
}

}  // namespace npu
