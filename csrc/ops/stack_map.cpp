#include "csrc/ops/stack_map.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>

#include <array>

#include "csrc/base/per_thread.h"
#include "csrc/host/kernel_mode.h"
#include "csrc/torch/device.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

c10::IValue map_tensor(const c10::IValue& value, const StackMap& map) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  return map.tensor(value.toTensor());
}

c10::IValue map_value(ArgKind kind, const c10::IValue& value,
                      const StackMap& map) {
  switch (kind) {
    case ArgKind::kTensor:
      return map_tensor(value, map);
    case ArgKind::kTensorList: {
      if (value.isNone()) return value;
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector())
        list.push_back(t.defined() ? map.tensor(t) : t);
      return list;
    }
    case ArgKind::kOptionalTensorList: {
      if (value.isNone()) return value;
      c10::List<std::optional<at::Tensor>> list;
      for (const c10::IValue& element : value.toListRef()) {
        const c10::IValue mapped = map_tensor(element, map);
        list.push_back(mapped.isNone() ? std::nullopt
                                       : std::optional(mapped.toTensor()));
      }
      return list;
    }
    case ArgKind::kDevice:
      if (value.isDevice() && value.toDevice().type() == kNpu)
        return map.device;
      return value;
    case ArgKind::kGenerator:
      return map.generator;
    default:
      return value;
  }
}

}  // namespace

torch::jit::Stack map_stack(const Op::Schema& schema,
                            at::ArrayRef<c10::IValue> stack,
                            const StackMap& map) {
  torch::jit::Stack mapped;
  mapped.reserve(stack.size());
  for (size_t i = 0; i < stack.size(); ++i)
    mapped.push_back(map_value(schema.kinds[i], stack[i], map));
  return mapped;
}

at::Tensor to_meta(const at::Tensor& t) {
  at::Tensor meta =
      at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
  copy_flags(t, meta);
  return meta;
}

at::Tensor lend_meta(const at::Tensor& t) {
  // A lent tensor may have dimensions, and must not be marked as a wrapped
  // number.
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) return to_meta(t);
  constexpr size_t kLent = 8;  // few operators take more tensors
  struct Lent {
    std::array<at::Tensor, kLent> tensors;
    size_t next = 0;
  };
  Lent& lent = PerThread<Lent>::get();
  at::Tensor& meta = lent.tensors[lent.next++ % kLent];
  if (!meta.defined() || meta.use_count() != 1 ||
      meta.storage().use_count() != 1 ||
      meta.is_inference() != c10::InferenceMode::is_enabled())
    return meta = to_meta(t);
  c10::TensorImpl& impl = *meta.unsafeGetTensorImpl();
  if (impl.dtype() != t.dtype())
    impl.set_storage_and_dtype(meta.storage(), t.dtype());
  impl.set_sizes_and_strides(t.sizes(), t.strides(), 0);
  meta.storage().unsafeGetStorageImpl()->set_nbytes(
      at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.itemsize()));
  impl._set_conj(t.is_conj());
  impl._set_neg(t.is_neg());
  return meta;
}

at::Tensor host_copy(const at::Tensor& t) {
  KernelMode mode;
  at::Tensor copy = t.clone();
  copy_flags(t, copy);
  return copy;
}

}  // namespace npu
