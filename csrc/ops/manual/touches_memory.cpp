// Composites of torch whose kernels read or write the memory of tensors
// themselves, on the calling thread and beside the queue.

#include "csrc/ops/boxed.h"
#include "csrc/ops/kernels.h"

namespace npu {
namespace {

// tests/drivers/guarded.cpp finds them. The caller waits.
constexpr const char* kTouchMemory[] = {
    "_grid_sampler_2d_cpu_fallback",
    "_grid_sampler_2d_cpu_fallback.out",
    "_grid_sampler_2d_cpu_fallback_backward",
    "_nnpack_spatial_convolution",
    "_nnpack_spatial_convolution.out",
    "_reshape_from_tensor",
    "_rowwise_prune",
    "_saturate_weight_to_fp16",
    "_sobol_engine_draw",
    "_sobol_engine_ff_",
    "_sobol_engine_initialize_state_",
    "_sobol_engine_scramble_",
    "choose_qparams_optimized",
    "fbgemm_linear_quantize_weight",
    "range.out_",
};

// A packed weight is an object of the host in the place of a tensor's values,
// which neither lies on a device nor is copied there.
constexpr const char* kPackOnHost[] = {
    "fbgemm_linear_fp16_weight",
    "fbgemm_linear_fp16_weight.out",
    "fbgemm_linear_fp16_weight_fp32_activation",
    "fbgemm_linear_fp16_weight_fp32_activation.out",
    "fbgemm_linear_int8_weight",
    "fbgemm_linear_int8_weight_fp32_activation",
    "fbgemm_pack_gemm_matrix_fp16",
    "fbgemm_pack_quantized_matrix",
    "fbgemm_pack_quantized_matrix.KN",
};

void refuse_packed(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "npu: ", op.operator_name(),
      " is of weights that are packed for the host's processor; call it with "
      "tensors on cpu");
}

NPU_KERNELS(PrivateUse1, m) {
  for (const char* name : kTouchMemory)
    m.impl(name, boxed_kernel<&call_boxed_waiting>(), "the caller waits");
  for (const char* name : kPackOnHost)
    m.impl(name, boxed_kernel<&refuse_packed>(), "refused");
}

}  // namespace
}  // namespace npu
