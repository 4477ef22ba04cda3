// Quantized tensors: refused. Those of torch.ao keep numbers of one type in a
// dtype of their own, for kernels of the host's processor.
#include "csrc/ops/kernels.h"

namespace npu {
namespace {

constexpr const char* kMakeThem[] = {
    "_empty_affine_quantized",
    "_empty_per_channel_affine_quantized",
    "_make_per_channel_quantized_tensor",
    "_make_per_tensor_quantized_tensor",
    "empty_quantized",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quantize_per_tensor.tensor_qparams",
    "quantize_per_tensor.tensors",
    "quantize_per_tensor_dynamic",
};

void refuse_quantized(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "Could not run '", op.operator_name(),
      "' on npu, which has no quantized tensors: quantize on cpu, or use "
      "integers and scales (torch.fake_quantize_per_tensor_affine(), torchao)");
}

void refuse(Kernels& m, const char* name) {
  m.impl(name, boxed_kernel<&refuse_quantized>(), "refused");
}

NPU_KERNELS(PrivateUse1, m) {
  for (const char* name : kMakeThem) refuse(m, name);
}

// A call without a tensor that asks for such a dtype has this key. As none
// makes a tensor, no other operator is called with it.
NPU_KERNELS(QuantizedPrivateUse1, m) {
  for (const char* name : kMakeThem) refuse(m, name);
  for (const char* name : {"empty.memory_format", "empty_strided"})
    refuse(m, name);
}

}  // namespace
}  // namespace npu
