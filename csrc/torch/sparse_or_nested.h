// Tensors that keep their values in other tensors: sparse (COO, and CSR, CSC,
// BSR, BSC) and strided nested ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace npu {

// Sparse or nested, on any device.
bool is_sparse_or_nested(const at::Tensor& t);

// The backend of cpu kernels for `t`.
c10::DispatchKey cpu_key_of(const at::Tensor& t);

// The tensors in which `t` keeps its values, in an order that depends only on
// the layout. A nested tensor's sizes are on the host and not among them.
std::vector<at::Tensor> parts_of(const at::Tensor& t);

// A tensor like `t`, of the given parts and on their device. Neither checks nor
// waits.
at::Tensor of_parts(const at::Tensor& t, const std::vector<at::Tensor>& parts);

// Gives `t` the parts, and the shape and flags of `like`, a tensor of the same
// layout.
void set_parts(const at::Tensor& t, const std::vector<at::Tensor>& parts,
               const at::Tensor& like);

// Whether the two differ in shape or flags.
bool same_frame(const at::Tensor& a, const at::Tensor& b);

}  // namespace npu
