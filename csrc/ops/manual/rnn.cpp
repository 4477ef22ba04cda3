// The fused LSTM and GRU cells that torch uses on accelerators, composed of the
// device's own operators. The gates are side by side in the last dimension: of
// an LSTM input, forget, cell, output; of a GRU reset, update, new.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <tuple>
#include <vector>
#include "csrc/ops/kernels.h"

namespace npu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

Tensor bias_gradient(const Tensor& gates, bool has_bias) {
  return has_bias ? gates.sum(0, /*keepdim=*/false) : Tensor();
}

std::vector<Tensor> side_by_side(const Tensor& gates, int64_t n) {
  TORCH_CHECK(gates.dim() == 2 && gates.size(1) % n == 0, "Expected ", n,
              " gates side by side in a matrix, but got a tensor of shape ",
              gates.sizes());
  return gates.chunk(n, 1);
}

// Returns hidden, cell, and the activated gates for backward.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cell,
    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto gates =
      side_by_side(with_bias(input_gates, input_bias)
                       .add(with_bias(hidden_gates, hidden_bias)),
                   4);
  const Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid();
  const Tensor update = gates[2].tanh(), out = gates[3].sigmoid();
  const Tensor next = forget.mul(cell).add_(in.mul(update));
  return {out.mul(next.tanh()), next, at::cat({in, forget, update, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const OptionalTensor& grad_hidden, const OptionalTensor& grad_cell,
    const Tensor& cell, const Tensor& next, const Tensor& workspace,
    bool has_bias) {
  const auto g = side_by_side(workspace, 4);
  const Tensor &in = g[0], &forget = g[1], &update = g[2], &out = g[3];
  const Tensor squashed = next.tanh();
  Tensor grad_next;
  Tensor grad_out;
  if (grad_hidden && grad_hidden->defined()) {
    grad_out = grad_hidden->mul(squashed);
    grad_next = grad_hidden->mul(out).mul_(1 - squashed.pow(2));
  } else {
    grad_out = next.mul(0);
    grad_next = next.mul(0);
  }
  if (grad_cell && grad_cell->defined()) grad_next = grad_next.add(*grad_cell);
  const Tensor gates =
      at::cat({grad_next.mul(update).mul_(in.mul(1 - in)),
               grad_next.mul(cell).mul_(forget.mul(1 - forget)),
               grad_next.mul(in).mul_(1 - update.pow(2)),
               grad_out.mul(out.mul(1 - out))},
              1);
  return {gates, grad_next.mul(forget), bias_gradient(gates, has_bias)};
}

// Returns hidden, and what backward needs: reset, update, new, the old hidden
// state, and the hidden part of the new gate.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates,
                                    const Tensor& hidden_gates,
                                    const Tensor& hidden,
                                    const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias) {
  const auto x = side_by_side(with_bias(input_gates, input_bias), 3);
  const auto h = side_by_side(with_bias(hidden_gates, hidden_bias), 3);
  const Tensor reset = x[0].add(h[0]).sigmoid_();
  const Tensor update = x[1].add(h[1]).sigmoid_();
  const Tensor fresh = x[2].add(h[2].mul(reset)).tanh_();
  return {fresh.add(hidden.sub(fresh).mul_(update)),
          at::cat({reset, update, fresh, hidden, h[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad, const Tensor& workspace, bool has_bias) {
  const auto w = side_by_side(workspace, 5);
  const Tensor &reset = w[0], &update = w[1], &fresh = w[2], &hidden = w[3];
  const Tensor grad_fresh = grad.mul(1 - update).mul_(1 - fresh.pow(2));
  const Tensor grad_update =
      grad.mul(hidden.sub(fresh)).mul_(update.mul(1 - update));
  const Tensor grad_reset = grad_fresh.mul(w[4]).mul_(reset.mul(1 - reset));
  const Tensor input_gates = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  const Tensor hidden_gates =
      at::cat({grad_reset, grad_update, grad_fresh.mul(reset)}, 1);
  return {input_gates, hidden_gates, grad.mul(update),
          bias_gradient(input_gates, has_bias),
          bias_gradient(hidden_gates, has_bias)};
}

NPU_KERNELS(PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace
}  // namespace npu
