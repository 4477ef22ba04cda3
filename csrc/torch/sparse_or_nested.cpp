#include "csrc/torch/sparse_or_nested.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <c10/core/DeviceGuard.h>

namespace npu {
namespace {

at::SparseTensorImpl* coo(const at::Tensor& t) {
  return at::sparse::get_sparse_impl(t);
}
at::SparseCsrTensorImpl* compressed(const at::Tensor& t) {
  return at::sparse_csr::get_sparse_csr_impl(t);
}
const at::native::NestedTensorImpl* nested(const at::Tensor& t) {
  return at::native::get_nested_tensor_impl(t);
}

}  // namespace

bool is_sparse_or_nested(const at::Tensor& t) {
  return t.defined() && (t.is_sparse() || t.is_nested() ||
                         at::sparse_csr::is_sparse_compressed(t));
}

c10::DispatchKey cpu_key_of(const at::Tensor& t) {
  if (t.is_sparse()) return c10::DispatchKey::SparseCPU;
  if (at::sparse_csr::is_sparse_compressed(t))
    return c10::DispatchKey::SparseCsrCPU;
  if (t.is_nested()) return c10::DispatchKey::NestedTensorCPU;
  return c10::DispatchKey::CPU;
}

std::vector<at::Tensor> parts_of(const at::Tensor& t) {
  if (t.is_sparse()) return {coo(t)->indices(), coo(t)->values()};
  if (t.is_nested()) return {nested(t)->get_unsafe_storage_as_tensor()};
  return {compressed(t)->compressed_indices(), compressed(t)->plain_indices(),
          compressed(t)->values()};
}

at::Tensor of_parts(const at::Tensor& t, const std::vector<at::Tensor>& parts) {
  const at::Tensor& values = parts.back();
  // torch makes a sparse tensor empty first, on the current device.
  const c10::OptionalDeviceGuard guard(values.device());
  if (t.is_sparse())
    return at::native::new_with_dims_and_tensor_sparse_symint(
        coo(t)->sparse_dim(), coo(t)->dense_dim(), t.sym_sizes(), parts[0],
        values, t.scalar_type(), at::kSparse, values.device(), false,
        coo(t)->coalesced());
  if (t.is_nested())
    return at::detail::make_tensor<at::native::NestedTensorImpl>(
        values, nested(t)->get_nested_sizes(), nested(t)->get_nested_strides(),
        nested(t)->get_storage_offsets());
  return at::native::_sparse_compressed_tensor_unsafe_symint(
      parts[0], parts[1], values, t.sym_sizes(), t.scalar_type(), t.layout(),
      values.device(), false);
}

void set_parts(const at::Tensor& t, const std::vector<at::Tensor>& parts,
               const at::Tensor& like) {
  if (t.is_sparse()) {
    coo(t)->raw_resize_(coo(like)->sparse_dim(), coo(like)->dense_dim(),
                        like.sizes());
    coo(t)->set_indices_and_values_unsafe(parts[0], parts[1]);
    coo(t)->set_coalesced(coo(like)->coalesced());
  } else if (!t.is_nested()) {
    compressed(t)->set_member_tensors(parts[0], parts[1], parts[2],
                                      like.sizes());
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "npu: a nested tensor cannot be given other memory in place");
  }
}

bool same_frame(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_nested()) return true;
  if (a.sizes() != b.sizes()) return false;
  return !a.is_sparse() || (coo(a)->sparse_dim() == coo(b)->sparse_dim() &&
                            coo(a)->coalesced() == coo(b)->coalesced());
}

}  // namespace npu
