// The places of a sparse tensor's elements as one number each, by which torch
// sorts and compares them. It asks a table of kernels for it, one for each kind
// of device; this device's is made of operators, and so of tasks.
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/zeros.h>

namespace at::native {
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
}  // namespace at::native

namespace npu {
namespace {

// indices: a row for each dimension of `size`.
at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef size) {
  at::Tensor places = at::zeros({indices.size(1)}, indices.options());
  int64_t stride = 1;
  for (int64_t dim = indices.size(0); dim-- > 0;) {
    places.add_(indices.select(0, dim), stride);
    stride *= size[size_t(dim)];
  }
  return places;
}

}  // namespace
}  // namespace npu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &npu::flatten_indices)
}  // namespace at::native
