// Shape functions in C++: they compute what a call returns from its arguments
// alone, in about a microsecond. Where an operator has none, its meta kernel is
// asked, which for most operators is Python.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "csrc/ops/op.h"
#include "csrc/ops/out_spec.h"

namespace npu {

// The new results of a call, in order.
class Shapes {
 public:
  // Adds a result like this tensor.
  void add(const at::Tensor& t);
  void add(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);
  void add_contiguous(at::IntArrayRef sizes, at::ScalarType type);
  // Adds a result with the strides that a memory format gives these sizes.
  void add(at::IntArrayRef sizes, at::MemoryFormat format, at::ScalarType type);
  void add_undefined();
  // The same where it is wanted, else an undefined result.
  void add_if(bool wanted, at::IntArrayRef sizes, at::MemoryFormat format,
              at::ScalarType type) {
    wanted ? add(sizes, format, type) : add_undefined();
  }
  // Adds a result with the strides of empty_like(t).
  void add_empty_like(const at::Tensor& t);

  std::vector<OutSpec> outs;
};

// The hand-written shape function of an operator, or null. `name` has its
// overload, if any, after a dot: "aten::where.self".
ShapeFunction shape_function_of(std::string_view name);
// The same: of operators on elements, of losses and layers, and of operators on
// lists of tensors.
ShapeFunction shape_function_of_elements(std::string_view name);
ShapeFunction shape_function_of_models(std::string_view name);
ShapeFunction shape_function_of_lists(std::string_view name);

// The arguments that generated shape functions give the meta functions of
// structured operators.
at::Tensor meta_of(const c10::IValue& value);
std::optional<at::Tensor> opt_meta_of(const c10::IValue& value);
std::vector<at::Tensor> metas_of(const c10::IValue& value);
c10::List<std::optional<at::Tensor>> opt_metas_of(const c10::IValue& value);

inline std::optional<std::string_view> opt_string_of(const c10::IValue& value) {
  if (value.isNone()) return std::nullopt;
  return value.toStringView();
}

// An optional list that lives as long as the call it is passed to.
struct OptionalInts {
  std::optional<std::vector<int64_t>> list;
  operator at::OptionalIntArrayRef() const {
    if (!list) return std::nullopt;
    return at::IntArrayRef(*list);
  }
};
OptionalInts opt_ints_of(const c10::IValue& value);

template <typename... T>
bool add_all(Shapes& to, const std::tuple<T...>& results) {
  std::apply([&](const auto&... t) { (to.add(t), ...); }, results);
  return true;
}
inline bool add_all(Shapes& to, const at::Tensor& result) {
  to.add(result);
  return true;
}

}  // namespace npu
