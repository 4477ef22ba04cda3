// torch.kaiser_window(). torch's function fills the window by a table of
// kernels, one for each kind of device, in which this device's is a task.
#include <ATen/TensorIterator.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/kaiser_window.h>

#include "csrc/ops/frame.h"
#include "csrc/ops/launch.h"
#include "csrc/ops/shapes.h"

namespace npu {
namespace {

// The arguments: the length, whether the window is periodic, beta, the window.
void run_kaiser_window(Frame& f) {
  at::Tensor out = f.tensor(3);
  at::kaiser_window_out(out, f.integer(0), f.boolean(1), f.real(2));
}

bool shapes_of_window(c10::ArrayRef<c10::IValue> a, Shapes& results) {
  results.add(a[3].toTensor());
  return true;
}

const Op kKaiserWindow("aten::kaiser_window", "beta_out", &run_kaiser_window,
                       NumbersInKey::kNo, Meta::kSeparate, &shapes_of_window);

// The caller has made the window longer where it is to be periodic.
void fill_kaiser_window(at::TensorIteratorBase& iterator, int64_t length,
                        double beta) {
  const bool periodic = false;
  call_in_place<0>(kKaiserWindow, length, periodic, beta, iterator.output());
}

}  // namespace
}  // namespace npu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub, &npu::fill_kaiser_window)
}  // namespace at::native
