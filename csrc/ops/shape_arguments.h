// What shape functions are written with: helpers that read a call's arguments,
// and tables.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <iterator>
#include <string_view>

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

// Whether an index selects what is true in it.
inline bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

inline bool is_plain(const at::Tensor& t) {
  return has_default_strides(*t.unsafeGetTensorImpl());
}

struct NamedShapes {
  std::string_view name;
  ShapeFunction function;
};

// The function of that name, or null.
template <size_t n>
ShapeFunction find_named(const NamedShapes (&table)[n], std::string_view name) {
  const auto* const at =
      std::find_if(std::begin(table), std::end(table),
                   [&](const NamedShapes& each) { return each.name == name; });
  return at == std::end(table) ? nullptr : at->function;
}

}  // namespace npu
