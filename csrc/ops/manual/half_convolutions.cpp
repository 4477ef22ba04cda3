// Computes in float32 those convolutions of float16 and bfloat16 for which
// torch's cpu kernels use no vector instructions: they take 30 to 170 times as
// long as in float32. Weights and images are converted, which takes a small
// part of that time. Backward is cpu's: its gradients of a bias are rounded
// otherwise.
#include <ATen/ops/convolution.h>

#include "csrc/ops/boxed.h"
#include "csrc/ops/frame.h"
#include "csrc/ops/half_products.h"

namespace npu {
namespace {

// oneDNN computes bfloat16 on machines that have wide vectors, but not the
// transposed kind.
bool goes_through_float(const at::Tensor& t, bool transposed) {
  if (t.scalar_type() == at::kHalf) return true;
  return t.scalar_type() == at::kBFloat16 &&
         (transposed || !has_wide_vectors());
}

at::Tensor wide(const at::Tensor& t) { return t.to(at::kFloat); }

void run_convolution(Frame& f) {
  const bool transposed = f.boolean(6);
  if (!goes_through_float(f.tensor(0), transposed)) return run_boxed(f);
  std::optional<at::Tensor> bias = f.opt_tensor(2);
  if (bias && bias->defined()) bias = wide(*bias);
  f.out(0).copy_(at::convolution(wide(f.tensor(0)), wide(f.tensor(1)), bias,
                                 f.ints(3), f.ints(4), f.ints(5), transposed,
                                 f.ints(7), f.integer(8)));
}

const bool registered = [] {
  set_runner("aten::convolution.", &run_convolution);
  return true;
}();

}  // namespace
}  // namespace npu
