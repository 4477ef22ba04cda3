// The first call of its kind: check, infer, plan, launch.
#include <ATen/core/stack.h>

#include "csrc/ops/boxed.h"
#include "csrc/ops/infer.h"
#include "csrc/ops/launch.h"
#include "csrc/ops/plan.h"
#include "csrc/ops/stack_map.h"
#include "csrc/ops/sync_call.h"
#include "csrc/ops/third_party.h"
#include "csrc/ops/trial.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

bool is_host_scalar(const at::Tensor& t) {
  return t.device().is_cpu() && t.dim() == 0 && t.layout() == at::kStrided;
}

// The device of the call. Throws, in torch's words, when tensors lie on
// several.
int common_device(const Op::Schema& schema, const torch::jit::Stack& stack) {
  std::optional<c10::Device> first;
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t) {
    if (is_host_scalar(t)) return;
    if (!first) first = t.device();
    TORCH_CHECK(*first == t.device(),
                "Expected all tensors to be on the same device, but found at "
                "least two devices, ",
                *first, " and ", t.device(), "! (in ", schema.full_name, ")");
  });
  if (first && first->type() == kNpu) return first->index();
  return current_device();
}

// Indices may lie on the host, as on CUDA.
bool move_indices(const Op::Schema& schema, torch::jit::Stack& stack) {
  if (!schema.moves_host_indices) return false;
  c10::Device device(c10::kCPU);
  bool on_host = false;
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t) {
    if (is_npu(t)) {
      device = t.device();
    } else if (t.device().is_cpu() && t.dim() > 0) {
      on_host = true;
    }
  });
  if (!on_host || device.is_cpu()) return false;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (schema.kinds[i] != ArgKind::kOptionalTensorList) continue;
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : stack[i].toListRef())
      list.push_back(element.isNone()
                         ? std::nullopt
                         : std::optional(element.toTensor().to(device)));
    stack[i] = list;
  }
  return true;
}

bool resize_written(const torch::jit::Stack& stack, const Inferred& found) {
  bool resized = false;
  for (const Written& w : found.written) {
    const at::Tensor& t = stack[w.argument].toTensor();
    if (t.sizes() == at::IntArrayRef(w.sizes)) continue;
    resize_tensor(t, w.sizes, w.strides);
    resized = true;
  }
  return resized;
}

void draw_for(Key& key, const Op::Schema& schema,
              const torch::jit::Stack& stack) {
  for (size_t i = 0; i < stack.size(); ++i)
    if (schema.kinds[i] == ArgKind::kGenerator)
      draw(key, stack[i].toOptional<at::Generator>());
}

}  // namespace

void call_waiting(const Op& op, torch::jit::Stack& stack) {
  Stream& stream = usable_stream(common_device(op.schema(), stack));
  raise_if_failed(stream);
  call_sync(op, stack, stream);
}

void call_cold(const Op& op, torch::jit::Stack& stack) {
  const Op::Schema& schema = op.schema();
  // The table is searched by the key as the caller encoded it; making shapes
  // below may encode other calls.
  Key& encoded = thread_key();
  const bool cacheable = encoded.ordinary;
  const std::vector<uint64_t> lookup(encoded.key.data(),
                                     encoded.key.data() + encoded.key.size());
  const uint64_t hash = cacheable ? encoded.hash() : 0;

  const bool moved = move_indices(schema, stack);
  const int device = common_device(schema, stack);
  Stream& stream = usable_stream(device);
  raise_if_failed(stream);

  const bool by_trial = op.meta == Meta::kNone;
  std::optional<Inferred> found =
      by_trial ? infer_by_trial(op, stack) : infer(op, stack);
  if (!found) {
    call_sync(op, stack, stream);
    return tell_that_it_waits(op);
  }
  const Verdict verdict =
      by_trial ? Verdict::kAgrees : try_on_zeros(op, stack, *found);
  if (verdict == Verdict::kUnknown) {
    const torch::jit::Stack arguments = stack;
    call_sync(op, stack, stream);
    return learn(op, arguments, from_results(op, stack) == found);
  }
  if (verdict != Verdict::kAgrees) return call_sync(op, stack, stream);
  const bool resized = resize_written(stack, *found);

  auto owned = std::make_unique<Plan>(op, stack, std::move(found->outs));
  Plan* plan = owned.get();
  Key key;
  encode(key, op, stack);
  if (!key.ordinary) return call_sync(op, stack, stream);
  TORCH_INTERNAL_ASSERT(key.words.size() == plan->n_key_words, op.name,
                        ": encoded ", key.words.size(), " words, planned ",
                        plan->n_key_words);
  draw_for(key, schema, stack);
  const bool keep = cacheable && !moved && !resized;
  if (keep) {
    plan_table(stream).insert(lookup, hash, std::move(owned));
    launch_boxed(op, stream, *plan, key, stack);
  } else {
    launch_boxed(op, stream, *plan, key, stack);
    retire_plan(std::move(owned), stream);
  }
}

}  // namespace npu
