#include "csrc/ops/infer.h"

#include <ATen/native/Resize.h>

#include <algorithm>
#include <unordered_map>

#include "csrc/base/hooks.h"
#include "csrc/host/kernel_mode.h"
#include "csrc/ops/shape_arguments.h"
#include "csrc/ops/stack_map.h"
#include "csrc/ops/stand_ins.h"
#include "csrc/ops/trial.h"
#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

OutSpec describe(const at::Tensor& t) {
  if (!t.defined()) return {false, false, {}, {}, {}};
  return {true, has_default_strides(*t.unsafeGetTensorImpl()), t.dtype(),
          at::DimVector(t.sizes()), at::DimVector(t.strides())};
}

// Infers by the operator's shape function.
std::optional<Inferred> infer_in_cpp(const Op::Schema& schema,
                                     at::ArrayRef<c10::IValue> stack) {
  if (!schema.shapes) return std::nullopt;
  Shapes results;
  results.outs.reserve(schema.returns.size());
  try {
    KernelMode mode;
    if (!schema.shapes(stack, results)) return std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // the call is most likely wrong
  }
  Inferred found;
  size_t i = 0;
  for (const Op::Return& r : schema.returns) {
    if (r.argument < 0) break;
    const at::Tensor& t = stack[size_t(r.argument)].toTensor();
    const OutSpec* const result =
        i < results.outs.size() ? &results.outs[i++] : nullptr;
    if (!result || t.sizes() == at::IntArrayRef(result->sizes)) {
      found.written.push_back(
          {r.argument, at::DimVector(t.sizes()), at::DimVector(t.strides())});
      continue;
    }
    // An out= argument gets the shape of the result; for another argument, a
    // different shape is an error.
    if (!schema.handle.schema().arguments()[size_t(r.argument)].kwarg_only())
      return std::nullopt;
    at::native::resize_output_check(t, result->sizes);
    found.written.push_back({r.argument, result->sizes, result->strides});
  }
  if (found.written.empty()) found.outs = std::move(results.outs);
  return found;
}

// Whether the shape of a result depends on values of this call.
bool may_depend_on_values(const Op::Schema& schema,
                          at::ArrayRef<c10::IValue> stack) {
  if (!schema.result_depends_on_data) [[likely]]
    return false;
  // self, indices
  if (schema.full_name == "aten::index.Tensor") {
    const auto indices = stack[1].toListRef();
    return std::any_of(indices.begin(), indices.end(), [](const auto& index) {
      return opt_tensor(index) && is_mask(index.toTensor());
    });
  }
  // repeats, output_size
  if (schema.full_name == "aten::repeat_interleave.Tensor")
    return stack[1].isNone();
  return true;
}

}  // namespace

bool is_interrupt(const std::exception& e) {
  return hooks.is_interrupt && hooks.is_interrupt(e);
}

std::optional<Inferred> from_results(const Op& op,
                                     const torch::jit::Stack& results) {
  const Op::Schema& schema = op.schema();
  const auto is_new_list = [](const Op::Return& r) {
    return r.is_list && r.argument < 0;
  };
  // With several new lists, the length of each would not be known.
  if (std::count_if(schema.returns.begin(), schema.returns.end(), is_new_list) >
      1)
    return std::nullopt;
  Inferred found;
  for (size_t i = 0; i < schema.returns.size(); ++i) {
    const Op::Return& r = schema.returns[i];
    if (r.is_list && r.argument < 0) {
      for (const at::Tensor& t : results[i].toTensorVector())
        found.outs.push_back(describe(t));
    } else if (!r.is_list) {
      if (!results[i].isTensor()) return std::nullopt;
      const at::Tensor& t = results[i].toTensor();
      if (t.defined() && t.layout() != at::kStrided) return std::nullopt;
      if (r.argument >= 0) {
        found.written.push_back(
            {r.argument, at::DimVector(t.sizes()), at::DimVector(t.strides())});
      } else {
        found.outs.push_back(describe(t));
      }
    }
  }
  return found;
}

std::optional<Inferred> infer(const Op& op, at::ArrayRef<c10::IValue> stack,
                              Overlap overlap) {
  const Op::Schema& schema = op.schema();
  if (may_depend_on_values(schema, stack) ||
      (schema.refusal && schema.refusal(stack)))
    return std::nullopt;
  if (auto found = infer_in_cpp(schema, stack)) return found;
  if (op.meta == Meta::kNone) return infer_by_trial(op, stack, overlap);
  if (!schema.tensors_only ||
      !schema.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta))
    return std::nullopt;
  // There is one meta tensor for each tensor, however often it is passed.
  std::unordered_map<c10::TensorImpl*, at::Tensor> meta;
  StandIns related(StandIns::Memory::kNone);
  torch::jit::Stack mapped =
      map_stack(schema, stack,
                {[&](const at::Tensor& t) {
                   at::Tensor& m = meta[t.unsafeGetTensorImpl()];
                   // The value of a 0-dim tensor of the host may matter.
                   if (!m.defined())
                     m = !is_npu(t)                  ? host_copy(t)
                         : overlap != Overlap::kNone ? related.of(t)
                                                     : to_meta(t);
                   return m;
                 },
                 c10::Device(c10::kMeta), c10::IValue()});
  try {
    KernelMode mode;
    schema.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta),
                                  &mapped);
    return from_results(op, mapped);
  } catch (const std::exception& e) {
    if (is_interrupt(e)) throw;
    return std::nullopt;
  }
}

}  // namespace npu
