// Helpers by which shape functions read a call's arguments.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "csrc/ops/shapes.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {

using Arguments = at::ArrayRef<c10::IValue>;

inline const at::Tensor& tensor(const c10::IValue& value) {
  return value.toTensor();
}

// Null where an optional tensor is missing.
inline const at::Tensor* opt_tensor(const c10::IValue& value) {
  if (value.isNone() || !value.toTensor().defined()) return nullptr;
  return &value.toTensor();
}

inline bool has_sizes(const c10::IValue& value, at::IntArrayRef sizes) {
  const at::Tensor* t = opt_tensor(value);
  return !t || t->sizes() == sizes;
}

inline at::MemoryFormat format_of(const at::Tensor& t) {
  return t.suggest_memory_format();
}

inline bool is_plain(const at::Tensor& t) {
  return has_default_strides(*t.unsafeGetTensorImpl());
}

}  // namespace npu
