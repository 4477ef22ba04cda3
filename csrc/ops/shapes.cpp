#include "csrc/ops/shapes.h"

#include <ATen/ExpandUtils.h>
#include <c10/core/MemoryFormat.h>

#include "csrc/ops/stack_map.h"
#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

at::Tensor mapped(const at::Tensor& t) { return is_npu(t) ? lend_meta(t) : t; }

}  // namespace

void Shapes::add(const at::Tensor& t) {
  if (!t.defined()) return add_undefined();
  add(t.sizes(), t.strides(), t.scalar_type());
}

void Shapes::add(at::IntArrayRef sizes, at::IntArrayRef strides,
                 at::ScalarType type) {
  outs.push_back({true, has_default_strides(sizes, strides),
                  c10::scalarTypeToTypeMeta(type), at::DimVector(sizes),
                  at::DimVector(strides)});
}

void Shapes::add_contiguous(at::IntArrayRef sizes, at::ScalarType type) {
  outs.push_back({true, true, c10::scalarTypeToTypeMeta(type),
                  at::DimVector(sizes), default_strides(sizes)});
}

void Shapes::add(at::IntArrayRef sizes, at::MemoryFormat format,
                 at::ScalarType type) {
  if (format == at::MemoryFormat::ChannelsLast && sizes.size() == 4)
    return add(sizes, c10::get_channels_last_strides_2d(sizes), type);
  if (format == at::MemoryFormat::ChannelsLast3d && sizes.size() == 5)
    return add(sizes, c10::get_channels_last_strides_3d(sizes), type);
  add_contiguous(sizes, type);
}

void Shapes::add_undefined() { outs.push_back({false, false, {}, {}, {}}); }

void Shapes::add_empty_like(const at::Tensor& t) {
  add(t.sizes(),
      t.is_non_overlapping_and_dense()
          ? t.strides().vec()
          : at::infer_dense_strides(t.sizes(), t.strides()),
      t.scalar_type());
}

at::Tensor meta_of(const c10::IValue& value) {
  return mapped(value.toTensor());
}

std::optional<at::Tensor> opt_meta_of(const c10::IValue& value) {
  if (value.isNone() || !value.toTensor().defined()) return std::nullopt;
  return mapped(value.toTensor());
}

std::vector<at::Tensor> metas_of(const c10::IValue& value) {
  std::vector<at::Tensor> list = value.toTensorVector();
  for (at::Tensor& t : list)
    if (t.defined()) t = mapped(t);
  return list;
}

c10::List<std::optional<at::Tensor>> opt_metas_of(const c10::IValue& value) {
  c10::List<std::optional<at::Tensor>> list;
  for (const c10::IValue& element : value.toListRef())
    list.push_back(opt_meta_of(element));
  return list;
}

OptionalInts opt_ints_of(const c10::IValue& value) {
  if (value.isNone()) return {};
  return {value.toIntVector()};
}

}  // namespace npu
