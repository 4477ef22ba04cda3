// Sparse tensors, COO and compressed. torch's kernels that only take a tensor
// apart, or compute by calling operators on its parts, run as they are, on
// parts of the device: they wait for nothing, except where the operators they
// call do. All others read memory, and the caller waits for them.
#include <torch/library.h>

#include <set>
#include <string>

#include "csrc/ops/boxed.h"

namespace npu {
namespace {

constexpr const char* kOnPartsOfCoo[] = {
    // holding
    "_coalesced_", "_dimI", "_dimV", "_indices", "_nnz", "_values", "dense_dim",
    "indices", "is_coalesced", "is_pinned", "sparse_dim", "values",
    // making
    "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors",
    "_to_sparse", "_to_sparse.sparse_dim", "cat", "clone", "copy_",
    "copy_sparse_to_sparse_", "empty.memory_format", "empty_like", "permute",
    "resize_as_sparse_", "sparse_resize_", "sparse_resize_and_clear_",
    "unsqueeze", "view_as_complex", "view_as_real", "zero_", "zeros.out",
    // reducing the values
    "any", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "sum"};

constexpr const char* kOnPartsOfCompressed[] = {
    "_nnz",        "ccol_indices",
    "clone",       "col_indices",
    "copy_",       "crow_indices",
    "dense_dim",   "empty.memory_format",
    "empty_like",  "fill_.Scalar",
    "is_pinned",   "mul.Scalar",
    "mul_.Scalar", "resize_as_sparse_",
    "row_indices", "sparse_dim",
    "sum",         "values",
    "zero_"};

// Element by element; each maps zero to zero.
constexpr const char* kOnValues[] = {
    "abs",     "asin",  "asinh",    "atan",     "atanh", "ceil",
    "deg2rad", "erf",   "erfinv",   "expm1",    "floor", "frac",
    "isinf",   "isnan", "isneginf", "isposinf", "log1p", "neg",
    "rad2deg", "relu",  "round",    "sgn",      "sign",  "signbit",
    "sin",     "sinh",  "sqrt",     "tan",      "tanh",  "trunc"};

template <c10::DispatchKey key>
void on_parts(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name
                                    : name.name + "." + name.overload_name;
}

// Registers everything that the cpu's `key` has, for the library's own key.
template <c10::DispatchKey key, size_t n>
void register_like(torch::Library& m, const char* const (&on_parts_names)[n]) {
  std::set<std::string> parts;
  for (const char* name : on_parts_names)
    parts.insert(std::string("aten::") + name);
  for (const char* name : kOnValues)
    for (const char* form : {"", "_", ".out"})
      parts.insert(std::string("aten::") + name + form);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    if (!dispatcher.findOp(name)->hasKernelForDispatchKey(key)) continue;
    const std::string full = full_name(name);
    // The note is read by codegen/tiers.py.
    if (parts.count(full)) {
      m.impl(full.c_str(),
             torch::CppFunction::makeFromBoxedFunction<&on_parts<key>>().debug(
                 "on the tensor's parts"));
    } else {
      m.impl(full.c_str(),
             torch::CppFunction::makeFromBoxedFunction<&call_boxed_waiting>()
                 .debug("the caller waits"));
    }
  }
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  register_like<c10::DispatchKey::SparseCPU>(m, kOnPartsOfCoo);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  register_like<c10::DispatchKey::SparseCsrCPU>(m, kOnPartsOfCompressed);
}

// What cpu has no kernel for raises the cpu's words.
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&call_boxed_waiting>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&call_boxed_waiting>());
}

}  // namespace
}  // namespace npu
