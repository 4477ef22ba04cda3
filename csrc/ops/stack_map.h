// Exchanges every tensor, device and generator among the arguments of a boxed
// call.
#pragma once

#include <ATen/core/stack.h>

#include <functional>

#include "csrc/ops/op.h"

namespace npu {

struct StackMap {
  // Called for each occurrence of a defined tensor.
  std::function<at::Tensor(const at::Tensor&)> tensor;
  c10::Device device;     // for Device arguments that name an npu
  c10::IValue generator;  // for Generator arguments
};

torch::jit::Stack map_stack(const Op::Schema& schema,
                            at::ArrayRef<c10::IValue> stack,
                            const StackMap& map);

// A tensor of the same shape and flags without memory.
at::Tensor to_meta(const at::Tensor& t);

// The same, for no longer than a shape function runs: a later call on the
// thread may return the same tensor again, unless somebody still holds it.
at::Tensor lend_meta(const at::Tensor& t);

// A copy of a 0-dim tensor of the host, for code that reads its value and must
// not write the caller's tensor.
at::Tensor host_copy(const at::Tensor& t);

// Calls `visit` with every defined tensor of a boxed call, and the number of
// its argument.
template <typename Visit>
void for_each_tensor(const Op::Schema& schema, at::ArrayRef<c10::IValue> stack,
                     Visit visit) {
  for (size_t i = 0; i < stack.size(); ++i) {
    const ArgKind kind = schema.kinds[i];
    const bool is_list =
        kind == ArgKind::kTensorList || kind == ArgKind::kOptionalTensorList;
    if (stack[i].isNone() || (kind != ArgKind::kTensor && !is_list)) continue;
    const at::ArrayRef<c10::IValue> elements =
        is_list ? stack[i].toListRef() : at::ArrayRef(stack[i]);
    for (const c10::IValue& element : elements)
      if (element.isTensor() && element.toTensor().defined())
        visit(element.toTensor(), i);
  }
}

}  // namespace npu
