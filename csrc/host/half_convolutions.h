// Computes in float32 those convolutions of float16 and bfloat16 for which
// torch's cpu kernels use no vector instructions: they take 30 to 170 times as
// long as in float32. Weights and images are converted, which takes a small
// part of that time. The gradient of a bias is a plain sum, which torch's
// kernel adds in float32 as well, and rounds as cpu does.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <array>
#include <optional>
#include <vector>

namespace npu {

// The last arguments of at::convolution().
struct ConvolutionKind {
  at::IntArrayRef stride, padding, dilation;
  bool transposed;
  at::IntArrayRef output_padding;
  int64_t groups;
};

// True: `out` has the result; else nothing was done.
bool half_convolution(const at::Tensor& input, const at::Tensor& weight,
                      std::optional<at::Tensor> bias,
                      const ConvolutionKind& kind, at::Tensor& out);

// The gradients that are wanted; none where nothing was done.
std::vector<at::Tensor> half_convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalIntArrayRef bias_sizes, const ConvolutionKind& kind,
    std::array<bool, 3> wanted);

}  // namespace npu
