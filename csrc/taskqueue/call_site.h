// Who launches a task: the ids of call stacks that the layer above knows.
#pragma once

#include <cstdint>

namespace npu {

struct CallSite {
  uint32_t site = 0;     // the calling thread's stack; 0: not known
  uint32_t forward = 0;  // in backward: that of the forward call; else 0
};

// Called once per operator, so they must cost next to nothing, and never fail.
struct CallSiteHooks {
  CallSite (*launch)() = nullptr;
  uint32_t (*stack)() = nullptr;  // CallSite::site alone, which costs less
};

namespace detail {
inline CallSiteHooks call_site_hooks;
}

// To be called before the first launch.
inline void set_call_site_hooks(const CallSiteHooks& hooks) {
  detail::call_site_hooks = hooks;
}

// Of a launch that the calling thread is about to make.
inline CallSite call_site() {
  return detail::call_site_hooks.launch ? detail::call_site_hooks.launch()
                                        : CallSite{};
}
// The calling thread's stack, of whatever is not a launch.
inline uint32_t call_stack_id() {
  return detail::call_site_hooks.stack ? detail::call_site_hooks.stack() : 0;
}

}  // namespace npu
