// The gradients of slices, written where they belong: torch's kernels allocate
// a result of their own, which would be copied there.
#include "csrc/ops/boxed.h"
#include "csrc/ops/frame.h"

namespace npu {
namespace {

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

const bool registered_slices = [] {
  set_runner("aten::select_backward.", &run_select_backward);
  set_runner("aten::slice_backward.", &run_slice_backward);
  return true;
}();

}  // namespace
}  // namespace npu
