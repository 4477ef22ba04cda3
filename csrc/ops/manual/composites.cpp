// Operators that torch composes of several: here each becomes one task. Also
// registers the kernel of every operator without a wrapper of its own.
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_dropout_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "csrc/host/half_convolutions.h"
#include "csrc/ops/boxed.h"
#include "csrc/ops/frame.h"
#include "csrc/ops/kernels.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

constexpr const char* kOneTask[] = {
    "convolution_backward",
    "embedding",
    "slice_backward",
    "select_backward",
    "constant_pad_nd",
    "binary_cross_entropy_with_logits",
    "mode.values",
    "addr_",
    "ldexp.Tensor",
    "ldexp_",
    "ldexp.out",
    // These would else call their out= form with an empty tensor at each call.
    "abs",
    "complex",
    "frexp.Tensor",
    "kthvalue",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "median.dim",
    "mvlgamma",
    "nanmedian.dim",
    "polar",
    "soft_margin_loss",
    "soft_margin_loss_backward",
};

// The cpu kernel draws from a generator that it does not take as an argument.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input,
                                                  double p,
                                                  std::optional<bool> train) {
  if (input.numel() == 0 || (train && !*train) || p == 0)
    return {input.clone(),
            at::ones_like(input, input.options().dtype(at::kBool))};
  if (p == 1)
    return {at::zeros_like(input),
            at::zeros_like(input, input.options().dtype(at::kBool))};
  at::Tensor mask =
      at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
  // The product is its own derivative's. Of smaller types that one rounds the
  // factor, which cpu's dropout does not.
  return {input.scalar_type() == at::kFloat
              ? at::native_dropout_backward(input, mask, 1 / (1 - p))
              : input.mul(mask).mul_(1 / (1 - p)),
          mask};
}

// torch._convolution, which traced models call, calls this on a device that is
// not one of torch's own.
at::Tensor convolution_overrideable(
    const at::Tensor& input, const at::Tensor& weight,
    const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups) {
  return at::convolution(input, weight, bias, stride, padding, dilation,
                         transposed, output_padding, groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor>
convolution_backward_overrideable(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
    bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  const int64_t channels = grad.size(1);
  return at::convolution_backward(
      grad, input, weight, at::OptionalIntArrayRef(channels), stride, padding,
      dilation, transposed, output_padding, groups, wanted);
}

// Arguments from `first` on, which say how a convolution is made.
ConvolutionKind how_convolved(const Frame& f, int first) {
  return {f.ints(first),        f.ints(first + 1), f.ints(first + 2),
          f.boolean(first + 3), f.ints(first + 4), f.integer(first + 5)};
}

void run_convolution(Frame& f) {
  if (!half_convolution(f.tensor(0), f.tensor(1), f.opt_tensor(2),
                        how_convolved(f, 3), f.out(0)))
    run_boxed(f);
}

void run_convolution_backward(Frame& f) {
  auto gradients = half_convolution_backward(
      f.tensor(0), f.tensor(1), f.tensor(2), f.opt(3, f.ints(3)),
      how_convolved(f, 4), f.booleans<3>(10));
  if (gradients.empty()) return run_boxed(f);
  f.store(std::move(gradients));
}

// The gradients of slices are written where they belong: torch's kernels
// allocate a result of their own, which would be copied there.
// grad, input_sizes, dim, index
void run_select_backward(Frame& f) {
  const at::Tensor& out = f.out(0);
  out.zero_();
  out.select(f.integer(2), f.integer(3)).copy_(f.tensor(0));
}

// grad, input_sizes, dim, start, end, step
void run_slice_backward(Frame& f) {
  const at::Tensor& out = f.out(0);
  out.zero_();
  out.slice(f.integer(2), f.integer(3), f.integer(4), f.integer(5))
      .copy_(f.tensor(0));
}

// Goes through the dispatcher; torch's conj_physical_() calls a table of
// kernels that has none for this device.
at::Tensor& conj_physical_(at::Tensor& self) {
  return self.is_complex() ? at::conj_physical_out(self, self) : self;
}

// Goes through the dispatcher; torch's calls the cpu kernel by its name.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_no_update(
    const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& mean,
    const std::optional<at::Tensor>& variance, double momentum, double eps) {
  auto [out, save_mean, save_variance] =
      at::native_batch_norm(input, weight, bias, mean, variance,
                            /*training=*/false, momentum, eps);
  return {out, save_mean, save_variance,
          at::empty({0}, input.options().dtype(at::kByte))};
}

// torch's shares the memory until somebody writes it, which the allocator of
// host memory lets it do.
at::Tensor lazy_clone(const at::Tensor& self) { return self.clone(); }

// torch has it for its own accelerators; reference implementations call it.
const at::Tensor& resize_output_(const at::Tensor& self, at::IntArrayRef size,
                                 c10::Device device) {
  TORCH_CHECK(self.device() == device, "out Tensor doesn't have the correct ",
              "device set: it is on ", self.device(), ", expected ", device);
  if (at::native::resize_output_check(self, size)) resize_tensor(self, size);
  return self;
}

// torch's tracer skips `convolution` and expects `_convolution` to be called
// inside of it, which comes back here through convolution_overrideable.
void convolution(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer))
      [[likely]]
    return call_boxed(op, stack);
  static const auto traced =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_convolution", "");
  const bool benchmark = false, deterministic = false, cudnn = false;
  const bool allow_tf32 = false;
  torch::jit::push(*stack, benchmark, deterministic, cudnn, allow_tf32);
  traced.callBoxed(stack);
}

NPU_KERNELS(PrivateUse1, m) {
  set_runner("aten::convolution.", &run_convolution);
  set_runner("aten::convolution_backward.", &run_convolution_backward);
  set_runner("aten::select_backward.", &run_select_backward);
  set_runner("aten::slice_backward.", &run_slice_backward);
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("convolution", boxed_kernel<&convolution>());
  m.impl("conj_physical_", TORCH_FN(conj_physical_));
  m.impl("_lazy_clone", TORCH_FN(lazy_clone));
  m.impl("_resize_output_", TORCH_FN(resize_output_));
  m.impl("_batch_norm_no_update", TORCH_FN(batch_norm_no_update));
  m.impl("convolution_overrideable", TORCH_FN(convolution_overrideable));
  m.impl("convolution_backward_overrideable",
         TORCH_FN(convolution_backward_overrideable));
  for (const char* name : kOneTask) m.impl(name, boxed_kernel<&call_boxed>());
}

NPU_KERNELS(PrivateUse1, m) { m.fallback(boxed_kernel<&call_boxed>()); }

}  // namespace
}  // namespace npu
