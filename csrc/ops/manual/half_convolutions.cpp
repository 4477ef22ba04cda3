// Computes in float32 those convolutions of float16 and bfloat16 for which
// torch's cpu kernels use no vector instructions: they take 30 to 170 times as
// long as in float32. Weights and images are converted, which takes a small
// part of that time. The gradient of a bias is a plain sum, which torch's
// kernel adds in float32 as well, and rounds as cpu does.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/sum.h>

#include "csrc/host/half_products.h"
#include "csrc/ops/boxed.h"
#include "csrc/ops/frame.h"

namespace npu {
namespace {

// oneDNN computes bfloat16 on machines that have wide vectors, but not the
// transposed kind. `result`: of the forward pass. Where it has no elements,
// float's kernel refuses what those of narrow types accept.
bool goes_through_float(const at::Tensor& result, bool transposed) {
  if (result.numel() == 0) return false;
  if (result.scalar_type() == at::kHalf) return true;
  return result.scalar_type() == at::kBFloat16 &&
         (transposed || !has_wide_vectors());
}

at::Tensor wide(const at::Tensor& t) { return t.to(at::kFloat); }

void run_convolution(Frame& f) {
  const bool transposed = f.boolean(6);
  if (!goes_through_float(f.out(0), transposed)) return run_boxed(f);
  std::optional<at::Tensor> bias = f.opt_tensor(2);
  if (bias && bias->defined()) bias = wide(*bias);
  f.out(0).copy_(at::convolution(wide(f.tensor(0)), wide(f.tensor(1)), bias,
                                 f.ints(3), f.ints(4), f.ints(5), transposed,
                                 f.ints(7), f.integer(8)));
}

void run_convolution_backward(Frame& f) {
  const bool transposed = f.boolean(7);
  const at::ScalarType type = f.tensor(0).scalar_type();
  if (!goes_through_float(f.tensor(0), transposed)) return run_boxed(f);
  const std::array<bool, 3> wanted = f.booleans<3>(10);
  std::vector<at::Tensor> found(3);
  if (wanted[0] || wanted[1])
    std::tie(found[0], found[1], std::ignore) = at::convolution_backward(
        wide(f.tensor(0)), wide(f.tensor(1)), wide(f.tensor(2)), f.opt_ints(3),
        f.ints(4), f.ints(5), f.ints(6), transposed, f.ints(8), f.integer(9),
        {wanted[0], wanted[1], false});
  if (wanted[2]) {
    std::vector<int64_t> all_but_channels;
    for (int64_t dim = 0; dim < f.tensor(0).dim(); ++dim)
      if (dim != 1) all_but_channels.push_back(dim);
    found[2] = at::sum(f.tensor(0), all_but_channels);
  }
  for (at::Tensor& gradient : found)
    if (gradient.defined()) gradient = gradient.to(type);
  f.store(std::move(found));
}

const bool registered_convolutions = [] {
  set_runner("aten::convolution.", &run_convolution);
  set_runner("aten::convolution_backward.", &run_convolution_backward);
  return true;
}();

}  // namespace
}  // namespace npu
