// What shape functions are written with: helpers that read a call's arguments,
// and tables.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
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

// The dtype of a parameter, which may differ from that of what it scales.
inline at::ScalarType type_of(const c10::IValue& parameter,
                              const at::Tensor& input) {
  const at::Tensor* t = opt_tensor(parameter);
  return (t ? *t : input).scalar_type();
}

// The place that a number, from the end if negative, means among so many.
inline std::optional<size_t> dim_of(const c10::IValue& value, int64_t count) {
  const int64_t i = value.toInt() + (value.toInt() < 0 ? count : 0);
  return i >= 0 && i < count ? std::optional(size_t(i)) : std::nullopt;
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
  for (const NamedShapes& each : table)
    if (each.name == name) return each.function;
  return nullptr;
}

}  // namespace npu
