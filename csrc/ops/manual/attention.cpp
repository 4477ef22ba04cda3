// Chooses fused attention kernels: the cpu's, by the cpu's rules.
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <torch/library.h>

namespace npu {
namespace {

int64_t choose(const at::Tensor& query, const at::Tensor& key,
               const at::Tensor& value, const std::optional<at::Tensor>& mask,
               double dropout, bool causal, std::optional<double> scale,
               bool grouped) {
  return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout,
                                           causal, scale, grouped);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(choose));
}

}  // namespace
}  // namespace npu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &npu::choose)
}  // namespace at::native
