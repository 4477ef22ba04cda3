// Fused attention kernels: the cpu's, chosen by the cpu's rules.
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>

#include "csrc/ops/kernels.h"

namespace npu {
namespace {

int64_t choose(const at::Tensor& query, const at::Tensor& key,
               const at::Tensor& value, const std::optional<at::Tensor>& mask,
               double dropout, bool causal, std::optional<double> scale,
               bool grouped) {
  return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout,
                                           causal, scale, grouped);
}

// torch's names for the fused kernel of a device that is not one of its own.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
           c10::SymInt, at::Tensor, at::Tensor, at::Tensor>
attention(const at::Tensor& query, const at::Tensor& key,
          const at::Tensor& value, const std::optional<at::Tensor>& bias,
          double dropout, bool causal, bool, std::optional<double> scale) {
  TORCH_CHECK(dropout == 0,
              "Fused attention on npu is that of cpu, which has no dropout");
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, key, value, dropout, causal, bias, scale);
  const at::Tensor unused = at::empty({0}, query.options().dtype(at::kLong));
  return {out,    logsumexp, {}, {}, query.sym_size(2), key.sym_size(2),
          unused, unused,    {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& bias, std::array<bool, 4> wanted,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor&,
    const at::Tensor&, c10::SymInt, c10::SymInt, double dropout, bool causal,
    const at::Tensor&, const at::Tensor&, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(!bias.defined() || !wanted[3],
                              "Fused attention on npu is that of cpu, which "
                              "computes no gradient of the bias");
  auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, query, key, value, out, logsumexp, dropout, causal,
      bias.defined() ? std::optional(bias) : std::nullopt, scale);
  return {wanted[0] ? q : at::Tensor(),
          wanted[1] ? k : at::Tensor(),
          wanted[2] ? v : at::Tensor(),
          {}};
}

NPU_KERNELS(PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(choose));
  m.impl("_scaled_dot_product_fused_attention_overrideable",
         TORCH_FN(attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward",
         TORCH_FN(attention_backward));
}

}  // namespace
}  // namespace npu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &npu::choose)
}  // namespace at::native
