#include "csrc/ops/op.h"

#include <ATen/core/enum_tag.h>

#include <string_view>
#include <utility>

#include "csrc/ops/shapes.h"
#include "csrc/ops/unmarked_writes.h"
#include "csrc/ops/widened.h"
#include "csrc/stats/segment.h"

namespace npu {
namespace {

bool is_tensor_type(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::OptionalType::ofTensor());
}

bool is_tensor_list_type(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::ListType &&
         is_tensor_type(type->castRaw<c10::ListType>()->getElementType());
}

ArgKind kind_of(const c10::Type& type);

ArgKind list_kind(const c10::Type& element) {
  using enum ArgKind;
  if (element.kind() == c10::TypeKind::OptionalType) return kOptionalTensorList;
  constexpr std::pair<ArgKind, ArgKind> kLists[] = {{kTensor, kTensorList},
                                                    {kScalar, kScalarList},
                                                    {kInt, kInts},
                                                    {kFloat, kFloats},
                                                    {kBool, kBools}};
  const ArgKind of = kind_of(element);
  for (const auto& [each, list] : kLists)
    if (each == of) return list;
  return kOther;
}

ArgKind kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::OptionalType:
      return kind_of(*type.castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::TensorType:
      return ArgKind::kTensor;
    case c10::TypeKind::NumberType:
      return ArgKind::kScalar;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ArgKind::kInt;
    case c10::TypeKind::FloatType:
      return ArgKind::kFloat;
    case c10::TypeKind::BoolType:
      return ArgKind::kBool;
    case c10::TypeKind::StringType:
      return ArgKind::kString;
    case c10::TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    case c10::TypeKind::DeviceObjType:
      return ArgKind::kDevice;
    case c10::TypeKind::ListType:
      return list_kind(*type.castRaw<c10::ListType>()->getElementType());
    default:
      return ArgKind::kOther;
  }
}

bool same_alias(const c10::AliasInfo* a, const c10::AliasInfo* b) {
  return a && b && a->isWrite() && b->isWrite() &&
         a->beforeSets() == b->beforeSets();
}

// Arguments that torch reads as a value wherever they are, if they have no
// dimension. All overloads of one that take a tensor take it there.
struct FromAnyDevice {
  std::string_view op;
  uint32_t arguments;
};
constexpr FromAnyDevice kFromAnyDevice[] = {
    {"aten::fill_", 1 << 1},       {"aten::masked_fill_", 1 << 2},
    {"aten::index_fill_", 1 << 3}, {"aten::index_put_", 1 << 2},
    {"aten::where", 0b111},        {"aten::_index_put_impl_", 1 << 2},
};

uint32_t arguments_from_any_device(std::string_view full_name) {
  const std::string_view name = full_name.substr(0, full_name.find('.'));
  for (const FromAnyDevice& each : kFromAnyDevice)
    if (each.op == name) return each.arguments;
  return 0;
}

const Op::Schema* read_schema(const Op& op) {
  auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(op.name, op.overload);
  auto* s = new Op::Schema{handle, op.name};
  if (*op.overload) s->full_name += std::string(".") + op.overload;
  const c10::FunctionSchema& schema = handle.schema();
  for (const c10::Argument& a : schema.arguments()) {
    s->writes.push_back(a.alias_info() && a.alias_info()->isWrite());
    s->writes_any = s->writes_any || s->writes.back();
    s->kinds.push_back(kind_of(*a.real_type()));
    if (s->kinds.back() == ArgKind::kGenerator) s->has_generator = true;
  }
  for (const c10::Argument& r : schema.returns()) {
    Op::Return ret{is_tensor_list_type(r.type()), -1};
    s->tensors_only =
        s->tensors_only && (ret.is_list || is_tensor_type(r.type()));
    for (size_t i = 0; i < schema.arguments().size(); ++i)
      if (same_alias(r.alias_info(), schema.arguments()[i].alias_info()))
        ret.argument = int(i);
    s->returns.push_back(ret);
  }
  for (const at::Tag tag : handle.getTags()) {
    if (tag == at::Tag::nondeterministic_seeded) s->is_random = true;
    if (tag == at::Tag::dynamic_output_shape) s->result_depends_on_data = true;
  }
  s->unmarked_writes = has_unmarked_writes(s->full_name);
  s->on_each = s->full_name.starts_with("aten::_foreach_");
  s->moves_host_indices = s->full_name.find("index") != std::string::npos;
  s->from_any_device = arguments_from_any_device(s->full_name);
  s->widened = widened_dtypes(s->full_name);
  s->shapes = op.shapes ? op.shapes : shape_function_of(s->full_name);
  s->refusal = refusal_of(s->full_name);
  return s;
}

}  // namespace

const Op::Schema& Op::schema() const {
  // Acquire: pairs with the release below.
  const Schema* s = schema_.load(std::memory_order_acquire);
  if (s) return *s;
  const Schema* fresh = read_schema(*this);
  if (schema_.compare_exchange_strong(s, fresh, std::memory_order_acq_rel)) {
    publish_name(fresh->full_name.c_str());
    return *fresh;
  }
  delete fresh;  // another thread was first
  return *s;
}

}  // namespace npu
