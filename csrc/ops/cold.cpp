// The first call of its kind: check, infer, plan, launch.
#include <ATen/core/stack.h>

#include <atomic>

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

std::atomic<uint64_t> launches{0};

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
void move_indices(const Op::Schema& schema, torch::jit::Stack& stack) {
  if (!schema.moves_host_indices) return;
  c10::Device device(c10::kCPU);
  bool on_host = false;
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t) {
    if (is_npu(t)) {
      device = t.device();
    } else if (t.device().is_cpu() && t.dim() > 0) {
      on_host = true;
    }
  });
  if (!on_host || device.is_cpu()) return;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (schema.kinds[i] != ArgKind::kOptionalTensorList) continue;
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : stack[i].toListRef())
      list.push_back(element.isNone()
                         ? std::nullopt
                         : std::optional(element.toTensor().to(device)));
    stack[i] = list;
  }
}

void resize_written(const torch::jit::Stack& stack, const Inferred& found) {
  for (const Written& w : found.written) {
    const at::Tensor& t = stack[w.argument].toTensor();
    if (t.sizes() == at::IntArrayRef(w.sizes)) continue;
    resize_tensor(t, w.sizes, w.strides);
  }
}

void draw_for(Key& key, const Op::Schema& schema,
              const torch::jit::Stack& stack) {
  for (size_t i = 0; i < stack.size(); ++i)
    if (schema.kinds[i] == ArgKind::kGenerator)
      draw(key, stack[i].toOptional<at::Generator>());
}

}  // namespace

uint64_t cold_launches() {
  // Relaxed: a count.
  return launches.load(std::memory_order_relaxed);
}

void call_waiting(const Op& op, torch::jit::Stack& stack) {
  Stream& stream = usable_stream(common_device(op.schema(), stack));
  raise_if_failed(stream);
  call_sync(op, stack, stream);
}

void call_cold(const Op& op, torch::jit::Stack& stack) {
  const Op::Schema& schema = op.schema();
  move_indices(schema, stack);
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
  resize_written(stack, *found);

  // What has been found out holds for the arguments as they are by now, so
  // that is what the plan is found by.
  KeyScope scope;
  Key& key = scope.key;
  encode(key, op, stack);
  if (!key.ordinary) return call_sync(op, stack, stream);
  PlanTable& table = plan_table(stream);
  const uint64_t hash = key.hash();
  Plan* plan = table.find(key, hash);
  if (!plan)
    plan = table.insert(
        key, hash,
        std::make_unique<Plan>(table.family(op, key, stack, found->outs), stack,
                               key, std::move(found->outs)),
        !scope.nested());
  // Relaxed: a count.
  launches.fetch_add(1, std::memory_order_relaxed);
  draw_for(key, schema, stack);
  launch_boxed(op, stream, *plan, key, stack);
}

}  // namespace npu
