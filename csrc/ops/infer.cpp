#include "csrc/ops/infer.h"

#include <ATen/EmptyTensor.h>

#include <unordered_map>

#include "csrc/ops/kernel_mode.h"
#include "csrc/ops/stack_map.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

at::Tensor to_meta(const at::Tensor& t) {
  if (!is_npu(t)) return t;  // a 0-dim cpu tensor: its value may matter
  at::Tensor meta = at::detail::empty_strided_meta(t.sizes(), t.strides(),
                                                   t.scalar_type());
  if (t.is_conj()) meta._set_conj(true);
  if (t.is_neg()) meta._set_neg(true);
  if (t.unsafeGetTensorImpl()->is_wrapped_number())
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

OutSpec describe(const at::Tensor& t) {
  if (!t.defined()) return {false, false, {}, {}, {}};
  return {true, t.is_contiguous(), t.dtype(), t.sizes().vec(),
          t.strides().vec()};
}

// False for results that no plan can hold.
bool collect(const Op::Schema& schema, const torch::jit::Stack& results,
             std::vector<OutSpec>& outs) {
  for (size_t i = 0; i < schema.returns.size(); ++i) {
    const Op::Return& r = schema.returns[i];
    if (r.argument >= 0) continue;
    if (r.is_list) {
      for (const at::Tensor& t : results[i].toTensorVector())
        outs.push_back(describe(t));
    } else {
      if (!results[i].isTensor()) return false;
      const at::Tensor& t = results[i].toTensor();
      if (t.defined() && t.layout() != at::kStrided) return false;
      outs.push_back(describe(t));
    }
  }
  return true;
}

}  // namespace

std::optional<Inferred> infer(const Op& op, at::ArrayRef<c10::IValue> stack) {
  const Op::Schema& schema = op.schema();
  if (!schema.tensors_only ||
      !schema.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta))
    return std::nullopt;
  // One meta tensor per tensor, so that in-place results can be recognised.
  std::unordered_map<c10::TensorImpl*, at::Tensor> meta;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  torch::jit::Stack mapped = map_stack(
      schema, stack,
      {[&](const at::Tensor& t) {
         at::Tensor& m = meta[t.unsafeGetTensorImpl()];
         if (!m.defined()) {
           m = to_meta(t);
           pairs.emplace_back(t, m);
         }
         return m;
       },
       c10::Device(c10::kMeta), c10::IValue()});
  Inferred found;
  try {
    KernelMode mode;
    schema.handle.redispatchBoxed(
        c10::DispatchKeySet(c10::DispatchKey::Meta), &mapped);
    if (!collect(schema, mapped, found.outs)) return std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
  for (const auto& [t, m] : pairs)
    if (t.sizes() != m.sizes())
      found.resizes.push_back({t, m.sizes().vec(), m.strides().vec()});
  return found;
}

bool as_inferred(const Op& op, const torch::jit::Stack& results,
                 const Inferred& inferred) {
  std::vector<OutSpec> actual;
  return collect(op.schema(), results, actual) && actual == inferred.outs;
}

void correct(const Op& op, const torch::jit::Stack& results,
             Inferred& inferred) {
  inferred.outs.clear();
  collect(op.schema(), results, inferred.outs);
}

}  // namespace npu
