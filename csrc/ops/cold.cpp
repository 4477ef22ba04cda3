// The first call of its kind: checks it, infers its results, makes a plan and
// launches it.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <new>

#include "csrc/host/kernel_mode.h"
#include "csrc/ops/argument_storages.h"
#include "csrc/ops/boxed.h"
#include "csrc/ops/infer.h"
#include "csrc/ops/launch.h"
#include "csrc/ops/overlap.h"
#include "csrc/ops/plan.h"
#include "csrc/ops/shape_arguments.h"
#include "csrc/ops/stack_map.h"
#include "csrc/ops/sync_call.h"
#include "csrc/ops/third_party.h"
#include "csrc/ops/trial.h"
#include "csrc/ops/widened.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/kernel_warnings.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

std::atomic<uint64_t> launches{0};

bool is_host_scalar(const at::Tensor& t) {
  return t.device().is_cpu() && t.dim() == 0 && t.layout() == at::kStrided;
}

// The device of the call. Throws, in torch's words, when tensors lie on
// several.
int common_device(const Op& op, const torch::jit::Stack& stack) {
  const Op::Schema& schema = op.schema();
  std::optional<c10::Device> first;
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t argument) {
    // Such a tensor is read by value. But a tensor that a kernel writes has to
    // be on the device where the kernel runs.
    if (is_host_scalar(t) && (!schema.writes[argument] || is_third_party(op)))
      return;
    if (!first) first = t.device();
    TORCH_CHECK(*first == t.device(),
                "Expected all tensors to be on the same device, but found at "
                "least two devices, ",
                *first, " and ", t.device(), "! (in ", schema.full_name, ")");
  });
  if (first && first->type() == kNpu) return first->index();
  for (const c10::IValue& value : stack)
    if (value.isDevice() && value.toDevice().type() == kNpu &&
        value.toDevice().has_index())
      return value.toDevice().index();
  return current_device();
}

bool writes_to_host(const Op::Schema& schema, const torch::jit::Stack& stack) {
  bool found = false;
  if (schema.writes_any)
    for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t argument) {
      found = found || (schema.writes[argument] && t.device().is_cpu());
    });
  return found;
}

bool call_cpu_kernel(const Op::Schema& schema, torch::jit::Stack& stack) {
  const KernelMode mode;
  schema.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU),
                                &stack);
  return true;
}

// Where the tensors of lists are on several devices, torch's kernel calls an
// operator on each tensor, as on CUDA.
bool call_on_each(const Op::Schema& schema, torch::jit::Stack& stack) {
  if (!schema.on_each) return false;
  std::optional<c10::Device> first;
  bool several = false;
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t argument) {
    if (schema.kinds[argument] != ArgKind::kTensorList) return;
    if (!first) first = t.device();
    several = several || t.device() != *first || t.device().is_cpu();
  });
  if (!several) return false;
  // The caller bumps the versions of tensors that are written in lists.
  return call_cpu_kernel(schema, stack);
}

// Copies values that are on another device than the call to the call's, as cuda
// does. True: no tensor of the device is left, and the call is done on the
// host.
bool call_with_values(const Op& op, torch::jit::Stack& stack) {
  const Op::Schema& schema = op.schema();
  if (!schema.from_any_device) [[likely]]
    return false;
  const auto is_value = [&](size_t i) {
    return schema.from_any_device >> i & 1 && stack[i].isTensor() &&
           is_npu(stack[i].toTensor()) && stack[i].toTensor().dim() == 0;
  };
  // What is written decides, else what has dimensions.
  std::optional<c10::Device> device;
  bool on_host = true;
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t i) {
    if (is_value(i)) return;
    if (schema.writes[i] || (!device && is_npu(t))) device = t.device();
    on_host = on_host && !is_npu(t);
  });
  const at::AutoDispatchBelowADInplaceOrView guard;
  bool moved = false;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!is_value(i)) continue;
    const at::Tensor value = stack[i].toTensor();
    if (!device) device = value.device();
    if (value.device() == *device) continue;
    stack[i] = value.to(*device);
    moved = true;
  }
  return moved && device->is_cpu() && on_host && call_cpu_kernel(schema, stack);
}

// The places where a mask on the host is true. They are found before anything
// is launched, so the shape of what the mask selects is known and nobody waits
// for the device. Empty: it is no mask, or one that does not fit, which the
// kernel reports.
std::vector<at::Tensor> places_in(const at::Tensor& index,
                                  const at::Tensor& indexed, int64_t at) {
  if (!is_mask(index) || !index.device().is_cpu() ||
      at + index.dim() > indexed.dim() ||
      indexed.sizes().slice(size_t(at), size_t(index.dim())) != index.sizes())
    return {};
  KernelMode mode;
  return index.nonzero().unbind(1);
}

// Copies indices that are on the host to the device, as CUDA does.
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
    // All such operators index their first argument.
    const at::Tensor& indexed = stack[0].toTensor();
    c10::List<std::optional<at::Tensor>> list;
    int64_t at = 0;  // the dimension that the next index is for
    for (const c10::IValue& element : stack[i].toListRef()) {
      if (element.isNone() || !element.toTensor().defined()) {
        list.push_back(std::nullopt);
        ++at;
        continue;
      }
      const at::Tensor& index = element.toTensor();
      const auto places = places_in(index, indexed, at);
      for (const at::Tensor& place : places)
        list.push_back(place.contiguous().to(device));
      if (places.empty()) list.push_back(index.to(device));
      at += is_mask(index) ? index.dim() : 1;
    }
    stack[i] = list;
  }
}

// Whether the argument shares its storage with another one of the call.
bool shares_storage(const Op::Schema& schema, const torch::jit::Stack& stack,
                    size_t argument) {
  const at::Tensor& t = stack[argument].toTensor();
  bool found = false;
  for_each_tensor(schema, stack, [&](const at::Tensor& other, size_t i) {
    found = found || (i != argument && is_npu(other) && t.is_alias_of(other));
  });
  return found;
}

// Whether the call resizes a tensor that only the kernel may resize: an
// argument that is no out=, or one that shares its memory with others.
bool resizes_unusually(const Op::Schema& schema, const torch::jit::Stack& stack,
                       const Inferred& found, Overlap overlap) {
  for (const Written& w : found.written)
    if (stack[w.argument].toTensor().sizes() != at::IntArrayRef(w.sizes) &&
        (overlap != Overlap::kNone ||
         shares_storage(schema, stack, size_t(w.argument)) ||
         !schema.handle.schema().arguments()[size_t(w.argument)].kwarg_only()))
      return true;
  return false;
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

// Gives an out= argument that the call resizes the memory of its new shape.
// Throws where another argument ends beyond its storage.
[[gnu::cold]] void provide_storages(const Op& op,
                                    const torch::jit::Stack& stack) {
  const Overlap overlap = overlap_of(op, stack);
  const std::optional<Inferred> found = infer(op, stack, overlap);
  if (found && !resizes_unusually(op.schema(), stack, *found, overlap))
    resize_written(stack, *found);
  argument_ends_beyond_storage(op, stack, /*raises=*/true);
}

// Launches an encoded call whose results are known.
void launch_new(Stream& stream, const Op& op, KeyScope& scope,
                std::vector<OutSpec> outs, torch::jit::Stack& stack) {
  PlanTable& table = plan_table(stream);
  const uint64_t hash = scope.key.hash();
  Plan* plan = table.find(scope.key, hash);
  if (!plan)
    plan = &table.insert(
        hash, std::make_unique<Plan>(op, stack, scope.key, std::move(outs)),
        !scope.nested());
  // Relaxed: a count.
  launches.fetch_add(1, std::memory_order_relaxed);
  launch_by(stream, *plan, op, scope.key, stack);
}

void call_unknown(const Op& op, torch::jit::Stack& stack) {
  const Op::Schema& schema = op.schema();
  if (argument_ends_beyond_storage(op, stack)) [[unlikely]]
    provide_storages(op, stack);
  if (call_widened(op, stack)) return;
  if (call_with_values(op, stack)) return;
  move_indices(schema, stack);
  if (call_on_each(schema, stack)) return;
  Stream& stream = usable_stream(common_device(op, stack));
  raise_if_failed(stream);
  // An operator may have shapes but no cpu kernel.
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.run != &run_boxed ||
          schema.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU),
      "Could not run '", schema.full_name,
      "' on npu: its kernels are those of cpu, and torch has none of this "
      "operator there. Compute with other operators, or move the tensors to a "
      "device that has it");
  if (writes_to_host(schema, stack)) return call_sync(op, stack, stream);

  const Overlap overlap = overlap_of(op, stack);
  std::optional<KeyScope> scope(std::in_place);
  const auto wait = [&] {
    scope.reset();
    call_sync(op, stack, stream);
  };
  encode(scope->key, op, stack);
  if (!scope->key.ordinary) return wait();
  std::optional<Identity> identity(scope->key.key.all());
  FirstCallWarnings warnings;
  std::optional<Inferred> found = infer(op, stack, overlap);
  warnings.again();
  if (!found) {
    warnings.runs();
    if (stream.sink()) raise_if_refused(op, stack, overlap);
    wait();
    return warn_that_it_waits(op);
  }
  const Verdict verdict = try_kernel(op, stack, *identity, overlap, *found);
  warnings.runs();
  if (verdict == Verdict::kUnknown) {
    wait();
    if (overlap != Overlap::kUnusual)
      remember_verdict(*identity, *found, from_results(op, stack));
    return;
  }
  if (verdict != Verdict::kAgrees ||
      resizes_unusually(schema, stack, *found, overlap))
    return wait();
  // What was inferred holds for the arguments as they are then, so the plan's
  // key is made of these.
  if (resize_written(stack, *found)) {
    encode(scope->key, op, stack);
    identity.emplace(scope->key.key.all());
  }
  launch_new(stream, op, *scope, std::move(found->outs), stack);
}

}  // namespace

uint64_t cold_launches() {
  // Relaxed: a count.
  return launches.load(std::memory_order_relaxed);
}

void call_waiting(const Op& op, torch::jit::Stack& stack) {
  Stream& stream = usable_stream(common_device(op, stack));
  raise_if_failed(stream);
  call_sync(op, stack, stream);
}

void call_cold(const Op& op, torch::jit::Stack& stack) {
  try {
    call_unknown(op, stack);
  } catch (const std::bad_alloc&) {
    raise_no_host_memory(op.schema().full_name.c_str());
  }
}

}  // namespace npu
