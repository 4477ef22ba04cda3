#include "csrc/ops/graph_kernels.h"

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "csrc/graph/hooks.h"
#include "csrc/ops/launch_state.h"
#include "csrc/ops/plan.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

void destroy(npu_kernel* kernel) { delete static_cast<Plan*>(kernel); }

// Tables may destroy their plans, so a node gets a copy; kernels of byte copies
// stay.
OwnKernel own_kernel(const npu_kernel* kernel) {
  if (!Plan::is_plan(kernel)) return {nullptr, nullptr, -1};
  auto plan = static_cast<const Plan*>(kernel)->for_graph();
  const int random_word = plan->random_word;
  return {plan.release(), &destroy, random_word};
}

// Nodes may be run by a thread that has been something else before.
void run_in_place(void (*work)(void*), void* context) {
  const c10::impl::ForceDispatchKeyGuard fresh{c10::default_included_set,
                                               c10::default_excluded_set};
  const at::RecordFunctionGuard unrecorded{false};
  const bool flushed = LaunchState::flushes_denormal();
  work(context);
  LaunchState::set_flush_denormal(flushed);
  after_direct_task();
}

}  // namespace

void register_graph_kernels() {
  set_own_kernel_hook(&own_kernel);
  set_in_place_hook(&run_in_place);
}

}  // namespace npu
