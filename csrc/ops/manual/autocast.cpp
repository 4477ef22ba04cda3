// torch.autocast("npu"): torch's own lists of operators, as CUDA uses them.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "csrc/ops/kernels.h"

namespace npu {
namespace {

// torch's lists name types without their namespace.
using at::IntArrayRef, at::Scalar, at::ScalarType, at::Tensor;

Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&,
                                   const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "binary_cross_entropy is unsafe to autocast: a sigmoid in low "
              "precision can return exactly 0 or 1, whose logarithm is not "
              "finite. Use binary_cross_entropy_with_logits or "
              "BCEWithLogitsLoss without the sigmoid, or call this one inside "
              "torch.autocast(\"npu\", enabled=False) with float32 inputs.");
}

NPU_KERNELS(AutocastPrivateUse1, m) {
  m.fallback(c10::KernelFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
#undef LOWER
#define FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FP32)
#undef FP32
#define FP32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_RESULT)
#undef FP32_RESULT
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(
      KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(PROMOTE)
#undef PROMOTE
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

}  // namespace
}  // namespace npu
