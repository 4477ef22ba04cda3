// Shape functions of the operators on lists of tensors, which optimizers call:
// their results are like their first list. False: the function does not know,
// as in shapes_by_hand.cpp.
#include <algorithm>
#include <iterator>

#include "csrc/ops/shape_arguments.h"

namespace npu {
namespace {

// Whether every list has an entry for each tensor of the first list, which has
// the same dtype and either the same size or one element.
bool are_parallel(Arguments arguments, bool may_be_empty = false) {
  const auto first = arguments[0].toListRef();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isComplexDouble()) return false;
    if (argument.isTensor() && argument.toTensor().defined() &&
        argument.toTensor().numel() != 1)
      return false;
    if (!argument.isList()) continue;
    const auto list = argument.toListRef();
    if (may_be_empty && i > 1 && list.empty()) continue;
    if (list.size() != first.size()) return false;
    if (!argument.isTensorList()) continue;
    for (size_t k = 0; k < list.size(); ++k) {
      const at::Tensor &t = list[k].toTensor(), &like = first[k].toTensor();
      if (!t.defined() || !at::isFloatingType(t.scalar_type()) ||
          t.scalar_type() != like.scalar_type() ||
          (t.sizes() != like.sizes() && (i == 1 || t.dim() > 0)))
        return false;
    }
  }
  return true;
}

// Takes parameters, gradients, and the optimizer's state of each parameter.
bool optimizer_step(Arguments a, Shapes&) {
  return are_parallel(a, /*may_be_empty=*/true);
}

bool foreach_in_place(Arguments a, Shapes&) {
  return a[0].isTensorList() && are_parallel(a);
}

bool foreach_new(Arguments a, Shapes& results) {
  if (!a[0].isTensorList() || !are_parallel(a)) return false;
  for (const c10::IValue& element : a[0].toListRef()) {
    const at::Tensor& t = element.toTensor();
    if (!is_plain(t)) return false;
    results.add_contiguous(t.sizes(), t.scalar_type());
  }
  return true;
}

// The operators whose results are like the first list.
constexpr std::string_view kElementWise[] = {
    "abs", "add", "addcdiv", "addcmul", "div",      "lerp", "maximum",
    "mul", "neg", "minimum", "rsqrt",   "sqrt",     "sub",  "clamp_max",
    "exp", "log", "sigmoid", "sign",    "clamp_min"};

}  // namespace

ShapeFunction shape_function_of_lists(std::string_view name) {
  constexpr std::string_view kForeach = "aten::_foreach_";
  const std::string_view base = name.substr(0, name.find('.'));
  if (name.starts_with("aten::_fused_") && base.ends_with("_"))
    return optimizer_step;
  if (!name.starts_with(kForeach) || name.ends_with("out")) return nullptr;
  if (base.ends_with("_")) return foreach_in_place;
  const std::string_view kind = base.substr(kForeach.size());
  const bool known = std::find(std::begin(kElementWise), std::end(kElementWise),
                               kind) != std::end(kElementWise);
  return known ? foreach_new : nullptr;
}

}  // namespace npu
