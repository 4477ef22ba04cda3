// Decompositions whose kernels refuse values, as of a matrix with a NaN. The
// task that meets one could tell only later, and not as LinAlgError, so the
// caller waits, as cuda's waits for what its kernels report. (Operators with
// `_ex` in their names return what they met, and need not wait.)
#include <ATen/core/dispatch/Dispatcher.h>

#include "csrc/engine/engine.h"
#include "csrc/ops/boxed.h"
#include "csrc/ops/kernels.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

constexpr const char* kRefuseValues[] = {
    "_linalg_svd",     "_linalg_svd.U",
    "_linalg_eigh",    "_linalg_eigh.eigenvalues",
    "linalg_eig",      "linalg_eig.out",
    "_linalg_eigvals", "linalg_eigvals.out",
    "cholesky",        "cholesky.out",
};

bool is_captured(const at::Tensor& t) {
  return is_npu(t) && current_stream(t.device().index()).sink();
}

void call_refusing(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor matrix =
      torch::jit::last(*stack, op.schema().arguments().size())[0].toTensor();
  // What a graph captures has no values yet, and a replay has no caller.
  if (is_captured(matrix)) return call_boxed(op, stack);
  call_boxed_waiting(op, stack);
}

NPU_KERNELS(PrivateUse1, m) {
  // The note is read by tools/op_tiers.py.
  for (const char* name : kRefuseValues)
    m.impl(name, boxed_kernel<&call_refusing>(), "the caller waits");
}

}  // namespace
}  // namespace npu
