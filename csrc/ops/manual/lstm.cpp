// nn.LSTM as cpu runs it: one oneDNN kernel, and so one task, for each layer
// and direction, instead of one for each time step and gate.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/lstm_ops.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "csrc/host/kernel_threads.h"
#include "csrc/host/result_memory.h"
#include "csrc/ops/boxed.h"
#include "csrc/ops/frame.h"
#include "csrc/ops/kernels.h"
#include "csrc/ops/shape_arguments.h"
#include "csrc/ops/unrecorded.h"
#include "csrc/torch/tensor.h"

// Declared here because ATen/autocast_mode.h includes every operator.
namespace at::autocast {
TORCH_API bool is_autocast_enabled(at::DeviceType device_type);
}

namespace npu {
namespace {

using at::Tensor, at::TensorList;
using Result = std::tuple<Tensor, Tensor, Tensor>;

constexpr int64_t kLstm = 2;  // in oneDNN's list of recurrent cells

// Whether cpu would use that kernel, as far as that does not depend on the
// host's instruction set (bfloat16). Not under autocast, which only casts for
// operators that it knows.
bool has_fused_layer(const Tensor& input, TensorList state, TensorList weights,
                     bool biases) {
  const auto is_float = [](const Tensor& t) {
    return is_npu(t) && t.scalar_type() == at::kFloat;
  };
  if (!at::globalContext().userEnabledMkldnn() || !at::hasMKLDNN() ||
      at::autocast::is_autocast_enabled(at::kPrivateUse1))
    return false;
  if (input.dim() != 3 || input.numel() == 0 || state.size() != 2 ||
      !is_float(input))
    return false;
  if (!std::all_of(state.begin(), state.end(), is_float) ||
      !std::all_of(weights.begin(), weights.end(), is_float))
    return false;
  // An LSTM with a projection has more weights, and a shorter hidden state.
  return weights.size() % (biases ? 4 : 2) == 0 && state[0].dim() == 3 &&
         state[1].dim() == 3 && state[0].sizes() == state[1].sizes();
}

// Whether every size is as it must be. What is wrong is left to torch's own
// checks and their messages.
bool sizes_fit(const Tensor& input, const Tensor& hidden, TensorList weights,
               size_t per_layer, int64_t layers, int64_t directions,
               bool batch_first) {
  const int64_t size = hidden.size(2);
  if (hidden.size(0) != layers * directions ||
      hidden.size(1) != input.size(batch_first ? 0 : 1) ||
      weights.size() != size_t(layers * directions) * per_layer)
    return false;
  for (int64_t i = 0; i < layers * directions; ++i) {
    const TensorList w = weights.slice(size_t(i) * per_layer, per_layer);
    const int64_t width = i < directions ? input.size(2) : size * directions;
    if (w[0].sizes() != at::IntArrayRef({4 * size, width}) ||
        w[1].sizes() != at::IntArrayRef({4 * size, size}))
      return false;
    for (const Tensor& bias : w.slice(2))
      if (bias.sizes() != at::IntArrayRef({4 * size})) return false;
  }
  return true;
}

Result lstm_by_layers(const Tensor& input, TensorList state, TensorList weights,
                      bool biases, int64_t layers, double dropout, bool train,
                      bool bidirectional, bool batch_first) {
  const int64_t directions = bidirectional ? 2 : 1;
  const size_t per_layer = biases ? 4 : 2;
  if (!has_fused_layer(input, state, weights, biases) ||
      !sizes_fit(input, state[0], weights, per_layer, layers, directions,
                 batch_first))
    return at::native::lstm(input, state, weights, biases, layers, dropout,
                            train, bidirectional, batch_first);
  const int64_t size = state[0].size(2);
  Tensor x = (batch_first ? input.transpose(0, 1) : input).contiguous();
  const Tensor hidden = state[0].contiguous(), cell = state[1].contiguous();
  std::vector<Tensor> last_hidden, last_cell;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t i = layer * directions + direction;
      const TensorList w = weights.slice(size_t(i) * per_layer, per_layer);
      auto [y, h, c, workspace] = at::mkldnn_rnn_layer(
          x, w[0], w[1], biases ? w[2] : at::zeros_like(w[0]),
          biases ? w[3] : at::zeros_like(w[1]), hidden[i], cell[i],
          /*reverse=*/direction == 1, /*batch_sizes=*/{}, kLstm, size, layers,
          biases, bidirectional, batch_first, train);
      outputs.push_back(y);
      last_hidden.push_back(h);
      last_cell.push_back(c);
    }
    x = directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (dropout > 0 && train && layer + 1 < layers)
      x = at::dropout(x, dropout, true);
  }
  return {batch_first ? x.transpose(0, 1) : x, at::stack(last_hidden),
          at::stack(last_cell)};
}

// A layer's kernel uses several threads within a time step. Where a step's
// gates have fewer elements than torch's grain size, waking threads for each
// step costs more than they save.
void use_threads_for_step(const Tensor& input, const Tensor& state) {
  constexpr int64_t kSmall = 32768;
  const int64_t gates = 4 * input.size(1) * state.size(-1);
  use_threads_for(gates > kSmall ? KernelSize::kLarge : KernelSize::kSmall);
}

// The cpu kernel leaves out the workspace for backward where its thread records
// no gradients, and does not look at `train`. A task runs on another thread
// than its caller's, so `train`, argument 15, says whether the caller does.
void run_layer(Frame& frame) {
  use_threads_for_step(frame.tensor(0), frame.tensor(5));
  const at::AutoGradMode mode(frame.boolean(15));
  const ResultMemory offered(frame.new_results());
  run_boxed(frame);
}

void run_layer_backward(Frame& frame) {
  use_threads_for_step(frame.tensor(0), frame.tensor(5));
  run_boxed(frame);
}

// Arguments 0, 1, 2, 5, 6: input, weights, state; 8 batch_sizes, 9 mode,
// 10 hidden_size, 15 train. Where it trains, only the kernel knows the size of
// the workspace for backward.
bool layer_without_workspace(Arguments a, Shapes& results) {
  const Tensor &input = tensor(a[0]), &state = tensor(a[5]);
  const int64_t size = a[10].toInt();
  if (a[15].toBool() || a[9].toInt() != kLstm || a[8].toListRef().size() ||
      input.dim() != 3 || input.numel() == 0 ||
      input.scalar_type() != at::kFloat ||
      state.sizes() != at::IntArrayRef({input.size(1), size}) ||
      tensor(a[6]).sizes() != state.sizes() ||
      tensor(a[1]).sizes() != at::IntArrayRef({4 * size, input.size(2)}) ||
      tensor(a[2]).sizes() != at::IntArrayRef({4 * size, size}))
    return false;
  results.add_contiguous({input.size(0), input.size(1), size}, at::kFloat);
  for (int i = 0; i < 2; ++i) results.add_contiguous(state.sizes(), at::kFloat);
  results.add_undefined();
  return true;
}

const Op kLayer("aten::mkldnn_rnn_layer", "", &run_layer, NumbersInKey::kNo,
                Meta::kNone, &layer_without_workspace);
const Op kLayerBackward("aten::mkldnn_rnn_layer_backward", "",
                        &run_layer_backward, NumbersInKey::kNo, Meta::kNone);

void layer(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  stack->back() = at::GradMode::is_enabled();
  call_on_top(kLayer, stack);
}

void layer_backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  call_on_top(kLayerBackward, stack);
}

Result lstm_of_autograd(c10::DispatchKeySet keys, const Tensor& input,
                        TensorList state, TensorList weights, bool biases,
                        int64_t layers, double dropout, bool train,
                        bool bidirectional, bool batch_first) {
  // That key has the kernel below.
  if (goes_to_device(keys.remove(c10::DispatchKey::BackendSelect)))
    return lstm_by_layers(input, state, weights, biases, layers, dropout, train,
                          bidirectional, batch_first);
  return at::_ops::lstm_input::redispatch(keys_of_composite(keys), input, state,
                                          weights, biases, layers, dropout,
                                          train, bidirectional, batch_first);
}

// In inference mode there is no autograd key. A kernel at PrivateUse1 would
// make torch.export keep the operator, which it takes apart on other devices.
// So it is one key above, and lets calls of other devices go on.
Result lstm_of_inference(c10::DispatchKeySet keys, const Tensor& input,
                         TensorList state, TensorList weights, bool biases,
                         int64_t layers, double dropout, bool train,
                         bool bidirectional, bool batch_first) {
  if (is_npu(input))
    return lstm_by_layers(input, state, weights, biases, layers, dropout, train,
                          bidirectional, batch_first);
  constexpr c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER,
                                      c10::DispatchKey::BackendSelect);
  return at::_ops::lstm_input::redispatch(keys & below, input, state, weights,
                                          biases, layers, dropout, train,
                                          bidirectional, batch_first);
}

NPU_KERNELS(AutogradPrivateUse1, m) {
  m.impl("lstm.input", TORCH_FN(lstm_of_autograd));
}
NPU_KERNELS(BackendSelect, m) {
  m.impl("lstm.input", TORCH_FN(lstm_of_inference));
}
// The kernel's own derivative is torch's.
NPU_KERNELS(PrivateUse1, m) {
  m.impl("mkldnn_rnn_layer", boxed_kernel<&layer>());
  m.impl("mkldnn_rnn_layer_backward", boxed_kernel<&layer_backward>());
}

}  // namespace
}  // namespace npu
