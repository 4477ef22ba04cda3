#include "csrc/ops/infer.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "csrc/ops/kernel_mode.h"
#include "csrc/ops/stack_map.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

constexpr int64_t kMaxTrialElements = 1 << 16;

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

bool accepts_dtypes(const Op& op, at::ArrayRef<c10::IValue> stack) {
  const Op::Schema& schema = op.schema();
  if (schema.is_random && !schema.has_generator) return true;
  int64_t elements = 0;
  std::vector<uint8_t> dtypes;
  for_each_tensor(schema, stack, [&](const at::Tensor& t) {
    elements += t.numel();
    dtypes.push_back(uint8_t(t.scalar_type()));
  });
  if (elements > kMaxTrialElements) return true;

  static std::mutex mutex;
  static std::map<std::pair<const Op*, std::vector<uint8_t>>, bool> known;
  const auto key = std::make_pair(&op, std::move(dtypes));
  {
    std::lock_guard lock(mutex);
    const auto at = known.find(key);
    if (at != known.end()) return at->second;
  }
  torch::jit::Stack zeros = map_stack(
      schema, stack,
      {[](const at::Tensor& t) {
         if (!is_npu(t)) return t;
         at::Tensor z = at::detail::empty_strided_cpu(t.sizes(), t.strides(),
                                                      t.scalar_type());
         if (z.nbytes())
           memset(z.mutable_data_ptr(), 0, z.storage().nbytes());
         return z;
       },
       c10::Device(c10::kCPU),
       schema.has_generator ? c10::IValue(seeded_generator({0, 0}))
                            : c10::IValue()});
  bool accepted = true;
  try {
    KernelMode mode;
    schema.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU),
                                  &zeros);
  } catch (const c10::NotImplementedError&) {
    accepted = false;
  } catch (const std::exception& e) {
    // Zeros may be a wrong value (a singular matrix); only a missing kernel
    // counts.
    const std::string_view text = e.what();
    accepted = text.find("not implemented for") == std::string_view::npos;
  }
  std::lock_guard lock(mutex);
  known.emplace(key, accepted);
  return accepted;
}

}  // namespace npu
