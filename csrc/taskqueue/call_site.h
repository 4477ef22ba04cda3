// Who launches a task: the ids of call stacks that the layer above knows.
#pragma once

#include <cstdint>

namespace npu {

struct CallSite {
  uint32_t site = 0;     // the calling thread's stack; 0: not known
  uint32_t forward = 0;  // in backward: that of the forward call; else 0
};

// Called once per operator, so it must cost next to nothing, and never fail.
using CallSiteHook = CallSite (*)();

namespace detail {
inline CallSiteHook call_site_hook = nullptr;
}

// To be called before the first launch.
inline void set_call_site_hook(CallSiteHook hook) {
  detail::call_site_hook = hook;
}

inline CallSite call_site() {
  return detail::call_site_hook ? detail::call_site_hook() : CallSite{};
}

}  // namespace npu
