#include "csrc/ops/graph_kernels.h"

#include "csrc/base/hooks.h"
#include "csrc/graph/body.h"
#include "csrc/ops/plan.h"

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

}  // namespace

void register_graph_kernels() { hooks.own_kernel = own_kernel; }

}  // namespace npu
