// Sparse tensors, COO and compressed, and strided nested ones. torch's kernels
// that only take a tensor apart, or compute by calling operators on its parts,
// run as they are, on parts that are on the device: they do not wait, except
// where the operators that they call do. All other kernels read memory, and the
// caller waits for them.
#include <c10/core/DeviceGuard.h>

#include <set>
#include <string>

#include "csrc/ops/boxed.h"
#include "csrc/ops/kernels.h"

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

constexpr const char* kOnPartsOfNested[] = {
    // holding; sizes and strides lie on the host
    "_nested_tensor_size", "_nested_tensor_storage_offsets",
    "_nested_tensor_strides", "is_pinned", "is_same_size", "values",
    // views
    "alias", "chunk", "detach", "narrow", "select.int", "split_with_sizes",
    "squeeze", "squeeze.dim", "squeeze.dims", "transpose.int", "unbind.int",
    "unsqueeze", "view",
    // making
    "_to_copy", "cat", "clone", "copy_", "empty_like", "fill_.Scalar",
    "fill_.Tensor", "ones_like", "zero_",
    // element by element
    "add.Tensor", "add_.Tensor", "cos", "div.Scalar", "div.Tensor", "gelu",
    "gelu_", "gelu_backward", "mul.Scalar", "mul.Tensor", "mul_.Scalar",
    "mul_.Tensor", "silu", "silu_", "silu_backward", "sub.Tensor"};

// Element by element; each maps zero to zero.
constexpr const char* kOnValues[] = {
    "abs",     "asin",  "asinh",    "atan",     "atanh", "ceil",
    "deg2rad", "erf",   "erfinv",   "expm1",    "floor", "frac",
    "isinf",   "isnan", "isneginf", "isposinf", "log1p", "neg",
    "rad2deg", "relu",  "round",    "sgn",      "sign",  "signbit",
    "sin",     "sinh",  "sqrt",     "tan",      "tanh",  "trunc"};

// The device of the call's tensors, else the device that it names.
std::optional<c10::Device> device_of(const c10::OperatorHandle& op,
                                     const torch::jit::Stack& stack) {
  std::optional<c10::Device> named;
  for (const c10::IValue& value :
       torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isDevice() && value.toDevice().is_privateuseone() &&
        value.toDevice().has_index())
      named = value.toDevice();
    const auto tensors = value.isTensorList() ? value.toListRef()
                         : value.isTensor()   ? at::ArrayRef(value)
                                              : at::ArrayRef<c10::IValue>();
    for (const c10::IValue& t : tensors)
      if (t.toTensor().defined() && t.toTensor().is_privateuseone())
        return t.toTensor().device();
  }
  return named;
}

// Runs the cpu kernel of `key`. It runs under a device guard, because torch
// makes a sparse tensor empty first, on the current device.
template <c10::DispatchKey key>
void on_parts(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::OptionalDeviceGuard guard(device_of(op, *stack));
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

// Registers every operator of torch that has a cpu kernel for one of these
// keys, for the device's key.
const bool registered_parts = [] {
  using Key = c10::DispatchKey;
  const auto names = [](auto& listed) {
    std::set<std::string> found;
    for (const char* name : listed) found.insert(std::string("aten::") + name);
    for (const char* name : kOnValues)
      for (const char* form : {"", "_", ".out"})
        found.insert(std::string("aten::") + name + form);
    return found;
  };
  struct {
    Key cpu;
    Kernels kernels;
    c10::KernelFunction on_parts;
    std::set<std::string> names;
  } kinds[] = {{Key::SparseCPU,
                {Key::SparsePrivateUse1, __FILE__},
                boxed_kernel<&on_parts<Key::SparseCPU>>(),
                names(kOnPartsOfCoo)},
               {Key::SparseCsrCPU,
                {Key::SparseCsrPrivateUse1, __FILE__},
                boxed_kernel<&on_parts<Key::SparseCsrCPU>>(),
                names(kOnPartsOfCompressed)},
               {Key::NestedTensorCPU,
                {Key::NestedTensorPrivateUse1, __FILE__},
                boxed_kernel<&on_parts<Key::NestedTensorCPU>>(),
                names(kOnPartsOfNested)}};
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = dispatcher.findOp(name);
    for (auto& kind : kinds) {
      if (!op->hasKernelForDispatchKey(kind.cpu)) continue;
      // The note is read by tools/op_tiers.py.
      if (kind.names.contains(c10::toString(name)))
        kind.kernels.impl(name, kind.on_parts, "on the tensor's parts");
      else
        kind.kernels.impl(name, boxed_kernel<&call_boxed_waiting>(),
                          "the caller waits");
    }
  }
  return true;
}();

// Make a nested tensor from a padded one, or from all values, on the device and
// sizes on the host.
NPU_KERNELS(PrivateUse1, m) {
  for (const char* name : {"_nested_from_padded", "_nested_view_from_buffer"})
    m.impl(name, boxed_kernel<&on_parts<c10::DispatchKey::CPU>>());
}

}  // namespace
}  // namespace npu
