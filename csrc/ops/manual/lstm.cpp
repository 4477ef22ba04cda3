// nn.LSTM as cpu runs it: one oneDNN kernel, and so one task, for each layer
// and direction, instead of one for each time step and gate.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/lstm_ops.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/mkldnn_rnn_layer_backward_cpu_dispatch.h>
#include <ATen/ops/mkldnn_rnn_layer_cpu_dispatch.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "csrc/host/kernel_cut.h"
#include "csrc/host/kernel_threads.h"
#include "csrc/host/result_memory.h"
#include "csrc/ops/boxed.h"
#include "csrc/ops/frame.h"
#include "csrc/ops/kernels.h"
#include "csrc/ops/shape_arguments.h"
#include "csrc/ops/unrecorded.h"
#include "csrc/placement/core_share.h"
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

// A layer whose batch is divided: each piece is a call of the kernel for some
// of the sequences, and nothing waits within it. Where the layer trains, row i
// of its workspace is that of piece i.
struct Batch {
  int64_t size;
  int pieces;

  int64_t begin(int piece) const { return size * piece / pieces; }
  int64_t most() const { return (size + pieces - 1) / pieces; }
  Tensor of(const Tensor& t, int64_t dim, int piece) const {
    const int64_t from = begin(piece);
    return t.narrow(dim, from, begin(piece + 1) - from);
  }
  // Of [time, batch, width] or [batch, width].
  Tensor part(const Tensor& t, int piece) const {
    return of(t, t.dim() - 2, piece).contiguous();
  }
  std::optional<Tensor> part(const std::optional<Tensor>& t, int piece) const {
    if (!t || !t->defined()) return std::nullopt;
    return part(*t, piece);
  }
  void put(const Tensor& part, const Tensor& all, int piece) const {
    of(all, all.dim() - 2, piece).copy_(part);
  }
};

// How a call is divided: by its sizes and the threads that its caller gives to
// kernels. Of few sequences a kernel takes nearly as long as of one. The least
// product of sizes is that of a layer of some 150 microseconds.
Batch batch_of(const Tensor& input, int64_t size) {
  constexpr int64_t kFewest = 4, kLeast = 8'000'000;
  const int64_t batch = input.size(1);
  const int64_t multiplications =
      input.size(0) * batch * 4 * size * (input.size(2) + size);
  if (multiplications < kLeast || batch < 2 * kFewest) return {batch, 1};
  return {batch, int(std::min<int64_t>(core_share(launch_threads()),
                                       batch / kFewest))};
}

void run_layer_in_pieces(Frame& f, const Batch& batch) {
  const bool train = f.boolean(15);
  run_pieces(batch.pieces, /*wakes=*/true, [&](int piece) {
    const at::AutoGradMode mode(train);
    const Tensor row = train ? f.out(3).select(0, piece) : Tensor();
    const ResultMemory offered(train ? at::TensorList(row) : at::TensorList());
    const auto [y, h, c, workspace] = at::cpu::mkldnn_rnn_layer(
        batch.part(f.tensor(0), piece), f.tensor(1), f.tensor(2), f.tensor(3),
        f.tensor(4), batch.part(f.tensor(5), piece),
        batch.part(f.tensor(6), piece), f.boolean(7), f.ints(8), f.integer(9),
        f.integer(10), f.integer(11), f.boolean(12), f.boolean(13),
        f.boolean(14), train);
    batch.put(y, f.out(0), piece);
    batch.put(h, f.out(1), piece);
    batch.put(c, f.out(2), piece);
    if (train && row.const_data_ptr() != workspace.const_data_ptr())
      row.narrow(0, 0, workspace.numel()).copy_(workspace);
  });
}

bool is_divided(const Tensor& workspace) {
  return workspace.defined() && workspace.dim() == 2;
}

// Into how many pieces a call is divided: where it trains, the shape function
// has said so.
int pieces_of(Frame& f) {
  if (const at::TensorList results = f.new_results(); f.boolean(15))
    return is_divided(results[3]) ? int(results[3].size(0)) : 1;
  const bool is_known = f.integer(9) == kLstm && f.ints(8).empty() &&
                        f.tensor(0).scalar_type() == at::kFloat &&
                        f.tensor(5).dim() == 2;
  return is_known ? batch_of(f.tensor(0), f.integer(10)).pieces : 1;
}

// The cpu kernel leaves out the workspace for backward where its thread records
// no gradients, and does not look at `train`. A task runs on another thread
// than its caller's, so `train`, argument 15, says whether the caller does.
void run_layer(Frame& frame) {
  const Tensor& input = frame.tensor(0);
  const Batch batch{input.size(1), pieces_of(frame)};
  if (batch.pieces > 1) return run_layer_in_pieces(frame, batch);
  use_threads_for_step(input, frame.tensor(5));
  const at::AutoGradMode mode(frame.boolean(15));
  const ResultMemory offered(frame.new_results());
  run_boxed(frame);
}

// Adds what the pieces give to the gradient of a weight: some of its rows.
void add_up(const std::vector<Tensor>& parts, const Tensor& all, int piece) {
  const Batch rows{all.size(0), int(parts.size())};
  const auto own = [&](const Tensor& t) { return rows.of(t, 0, piece); };
  Tensor out = own(all);
  at::cpu::add_outf(own(parts[0]), own(parts[1]), 1, out);
  for (size_t i = 2; i < parts.size(); ++i) out.add_(own(parts[i]));
}

// Arguments 0 to 6: input, weights, state; 7 to 9 results; 10 to 12 their
// gradients; 22 workspace.
void run_layer_backward(Frame& f) {
  const Tensor& workspace = f.tensor(22);
  if (!is_divided(workspace)) {
    use_threads_for_step(f.tensor(0), f.tensor(5));
    return run_boxed(f);
  }
  constexpr size_t kWeights = 4;  // results 1 to 4
  const Batch batch{f.tensor(0).size(1), int(workspace.size(0))};
  std::array<std::vector<Tensor>, kWeights> parts;
  for (auto& each : parts) each.resize(size_t(batch.pieces));
  run_pieces(batch.pieces, /*wakes=*/true, [&](int piece) {
    const auto part = [&](int i) { return batch.part(f.tensor(i), piece); };
    const auto gradient = [&](int i) {
      return batch.part(f.opt_tensor(i), piece);
    };
    auto [x, w0, w1, b0, b1, h, c] = at::cpu::mkldnn_rnn_layer_backward(
        part(0), f.tensor(1), f.tensor(2), f.tensor(3), f.tensor(4), part(5),
        part(6), part(7), part(8), part(9), gradient(10), gradient(11),
        gradient(12), f.boolean(13), f.integer(14), f.integer(15),
        f.integer(16), f.boolean(17), f.boolean(18), f.boolean(19), f.ints(20),
        f.boolean(21), workspace.select(0, piece));
    batch.put(x, f.out(0), piece);
    batch.put(h, f.out(5), piece);
    batch.put(c, f.out(6), piece);
    size_t i = 0;
    for (Tensor* each : {&w0, &w1, &b0, &b1})
      parts[i++][size_t(piece)] = std::move(*each);
  });
  run_pieces(batch.pieces, /*wakes=*/true, [&](int piece) {
    for (size_t i = 0; i < kWeights; ++i)
      add_up(parts[i], f.out(int(i) + 1), piece);
  });
}

// How large the kernel's workspace for backward is: only a run tells.
int64_t workspace_of(int64_t time, int64_t batch, int64_t width, int64_t size) {
  const at::AutoGradMode mode(true);
  const UseThreads alone(1);
  const auto zeros = [](at::IntArrayRef sizes) { return at::zeros(sizes); };
  const Tensor state = zeros({batch, size}), bias = zeros({4 * size});
  return std::get<3>(at::cpu::mkldnn_rnn_layer(
                         zeros({time, batch, width}), zeros({4 * size, width}),
                         zeros({4 * size, size}), bias, bias, state, state,
                         /*reverse=*/false, /*batch_sizes=*/{}, kLstm, size,
                         /*num_layers=*/1, /*has_biases=*/true,
                         /*bidirectional=*/false, /*batch_first=*/false,
                         /*train=*/true))
      .numel();
}

// Arguments 0, 1, 2, 5, 6: input, weights, state; 8 batch_sizes, 9 mode,
// 10 hidden_size, 15 train. Where it trains and is not divided, the size of the
// workspace is found by a trial.
bool layer_shapes(Arguments a, Shapes& results) {
  const Tensor &input = tensor(a[0]), &state = tensor(a[5]);
  const int64_t size = a[10].toInt();
  if (a[9].toInt() != kLstm || a[8].toListRef().size() || input.dim() != 3 ||
      input.numel() == 0 || input.scalar_type() != at::kFloat ||
      state.sizes() != at::IntArrayRef({input.size(1), size}) ||
      tensor(a[6]).sizes() != state.sizes() ||
      tensor(a[1]).sizes() != at::IntArrayRef({4 * size, input.size(2)}) ||
      tensor(a[2]).sizes() != at::IntArrayRef({4 * size, size}))
    return false;
  const bool train = a[15].toBool();
  const Batch batch = batch_of(input, size);
  if (train && batch.pieces == 1) return false;
  results.add_contiguous({input.size(0), input.size(1), size}, at::kFloat);
  for (int i = 0; i < 2; ++i) results.add_contiguous(state.sizes(), at::kFloat);
  if (train)
    results.add_contiguous(
        {batch.pieces,
         workspace_of(input.size(0), batch.most(), input.size(2), size)},
        at::kByte);
  else
    results.add_undefined();
  return true;
}

// Of a divided layer. A trial would not know the workspace.
bool backward_shapes(Arguments a, Shapes& results) {
  if (!is_divided(tensor(a[22]))) return false;
  for (int i : {0, 1, 2, 3, 4, 5, 6})
    results.add_contiguous(i == 3 || i == 4
                               ? at::IntArrayRef(tensor(a[1]).size(0))
                               : tensor(a[size_t(i)]).sizes(),
                           at::kFloat);
  return true;
}

const Op kLayer("aten::mkldnn_rnn_layer", "", &run_layer, NumbersInKey::kNo,
                Meta::kNone, &layer_shapes);
const Op kLayerBackward("aten::mkldnn_rnn_layer_backward", "",
                        &run_layer_backward, NumbersInKey::kNo, Meta::kNone,
                        &backward_shapes);

void layer(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  stack->back() = at::GradMode::is_enabled();
  call_on_top(kLayer, stack);
}

void layer_backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  call_on_top(kLayerBackward, stack);
}

template <typename F>
struct Lstm;
template <typename... Rest>
struct Lstm<Result(const Tensor&, Rest...)> {
  static Result of_autograd(c10::DispatchKeySet keys, const Tensor& input,
                            Rest... rest) {
    // That key has the kernel below.
    if (goes_to_device(keys.remove(c10::DispatchKey::BackendSelect)))
      return lstm_by_layers(input, rest...);
    return at::_ops::lstm_input::redispatch(keys_of_composite(keys), input,
                                            rest...);
  }

  // In inference mode there is no autograd key. A kernel at PrivateUse1 would
  // make torch.export keep the operator, which it takes apart on other devices.
  // So it is one key above, and lets calls of other devices go on.
  static Result of_inference(c10::DispatchKeySet keys, const Tensor& input,
                             Rest... rest) {
    if (is_npu(input)) return lstm_by_layers(input, rest...);
    constexpr c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER,
                                        c10::DispatchKey::BackendSelect);
    return at::_ops::lstm_input::redispatch(keys & below, input, rest...);
  }
};

NPU_KERNELS(AutogradPrivateUse1, m) {
  m.impl("lstm.input", TORCH_FN(Lstm<decltype(lstm_by_layers)>::of_autograd));
}
NPU_KERNELS(BackendSelect, m) {
  m.impl("lstm.input", TORCH_FN(Lstm<decltype(lstm_by_layers)>::of_inference));
}
// The kernel's own derivative is torch's.
NPU_KERNELS(PrivateUse1, m) {
  m.impl("mkldnn_rnn_layer", boxed_kernel<&layer>());
  m.impl("mkldnn_rnn_layer_backward", boxed_kernel<&layer_backward>());
}

}  // namespace
}  // namespace npu
