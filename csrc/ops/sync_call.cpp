#include "csrc/ops/sync_call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/copy.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "csrc/driver/driver.h"
#include "csrc/engine/profiling.h"
#include "csrc/graph/capture.h"
#include "csrc/host/kernel_mode.h"
#include "csrc/host/kernel_size.h"
#include "csrc/host/kernel_threads.h"
#include "csrc/ops/argument_storages.h"
#include "csrc/ops/stack_map.h"
#include "csrc/ops/stand_ins.h"
#include "csrc/ops/unmarked_writes.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/host_use.h"
#include "csrc/torch/sparse_or_nested.h"
#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

struct Alias {
  at::Tensor npu, cpu;
  const void* memory;        // of `cpu` when it was made
  const void* storage;       // likewise; null where `cpu` is no stand-in
  std::vector<Alias> parts;  // of a sparse or nested tensor
};

// Makes a cpu tensor over the memory of `t`. It covers the whole storage of the
// tensor, since kernels look at the storage, and an index may reach beyond the
// tensor itself.
Alias alias_of(const at::Tensor& t, StandIns& storages) {
  if (!is_sparse_or_nested(t)) {
    at::Tensor cpu = is_npu(t) ? storages.of(t) : host_alias(t);
    const void* const storage =
        is_npu(t) ? cpu.storage().unsafeGetStorageImpl() : nullptr;
    return {t, cpu, cpu.const_data_ptr(), storage, {}};
  }
  std::vector<Alias> parts;
  std::vector<at::Tensor> cpu;
  for (const at::Tensor& part : parts_of(t)) {
    // A part may be on the host, as in a nested tensor.
    parts.push_back(alias_of(part, storages));
    cpu.push_back(parts.back().cpu);
  }
  return {t, of_parts(t, cpu), nullptr, nullptr, std::move(parts)};
}

// Tells the observer what the operator reads and writes.
void tell_arguments(const Op& op, const torch::jit::Stack& stack,
                    Stream& stream) {
  const Op::Schema& schema = op.schema();
  std::vector<std::vector<at::Tensor>> parts;  // what `uses` refers to
  std::vector<HostUse> uses;
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t argument) {
    const uint8_t how = access_of(schema, argument, stack);
    auto add = [&](const at::Tensor& part) {
      if (is_npu(part)) uses.push_back({part, how});
    };
    if (!is_sparse_or_nested(t)) return add(t);
    for (const at::Tensor& part : parts.emplace_back(parts_of(t))) add(part);
  });
  tell_host_use(stream, schema.full_name.c_str(), uses);
}

// The device's tensor for a part of a cpu tensor: the argument's own part where
// the kernel has passed it on, else a copy.
at::Tensor part_to_device(const at::Tensor& part,
                          const std::vector<Alias>& aliases, Stream& stream) {
  if (part.numel())
    for (const Alias& alias : aliases)
      for (const Alias& own : alias.parts)
        if (part.const_data_ptr() == own.memory &&
            part.dtype() == own.cpu.dtype() &&
            part.sizes() == own.cpu.sizes() &&
            part.strides() == own.cpu.strides() &&
            part.is_conj() == own.npu.is_conj())
          return own.npu;
  return to_device(part, stream);
}

at::Tensor parts_to_device(const at::Tensor& cpu,
                           const std::vector<Alias>& aliases, Stream& stream) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : parts_of(cpu))
    parts.push_back(part_to_device(part, aliases, stream));
  return of_parts(cpu, parts);
}

// Gives a written tensor its parts back, which the kernel may have exchanged.
void take_over_parts(const Alias& alias, const std::vector<Alias>& aliases,
                     Stream& stream) {
  bool changed = !same_frame(alias.npu, alias.cpu);
  std::vector<at::Tensor> parts;
  const std::vector<at::Tensor> now = parts_of(alias.cpu);
  for (size_t i = 0; i < now.size(); ++i) {
    const Alias& was = alias.parts[i];
    const bool kept = now[i].const_data_ptr() == was.memory &&
                      now[i].sizes() == was.npu.sizes() &&
                      now[i].strides() == was.npu.strides();
    parts.push_back(kept ? was.npu : part_to_device(now[i], aliases, stream));
    changed = changed || !kept;
  }
  if (changed) set_parts(alias.npu, parts, alias.cpu);
}

// Gives a written tensor its result back: an out= argument that the kernel
// resized has other memory now.
void take_over(const Alias& alias, Stream& stream) {
  set_conj(alias.cpu, alias.npu.is_conj());
  if (alias.cpu.sizes() != alias.npu.sizes()) {
    resize_tensor(alias.npu, alias.cpu.sizes(), alias.cpu.strides());
    // The resize has queued a copy to the new block.
    if (!stream.idle()) host_wait(stream, stream.tail(), WaitReason::kOperator);
  }
  if (alias.cpu.const_data_ptr() == alias.memory || !alias.cpu.numel() ||
      reads_zeros())
    return;
  const c10::Storage &from = alias.cpu.storage(), &to = alias.npu.storage();
  if (from.unsafeGetStorageImpl() != alias.storage) {
    host_alias(alias.npu).copy_(alias.cpu);
    return;
  }
  // The kernel has moved the whole storage, which other arguments may share.
  memcpy(to.mutable_data(), from.data(), std::min(to.nbytes(), from.nbytes()));
}

// A call without npu tensors comes here because of its generator. It is right
// only where it names an npu device.
void check_generator(const torch::jit::Stack& stack) {
  bool asks = false;
  for (const c10::IValue& value : stack) {
    if (value.isDevice() && value.toDevice().type() == kNpu) return;
    asks = asks || value.isGenerator();
  }
  TORCH_CHECK(!asks,
              "Expected a 'cpu' device type for generator but found 'npu'");
}

}  // namespace

at::Tensor to_device(const at::Tensor& cpu, Stream& stream) {
  if (!cpu.defined()) return cpu;
  if (is_sparse_or_nested(cpu)) return parts_to_device(cpu, {}, stream);
  TORCH_CHECK_NOT_IMPLEMENTED(cpu.layout() == at::kStrided,
                              "npu: results of layout ", cpu.layout(),
                              " are not supported; move the inputs to cpu");
  at::Tensor t = make_tensor(stream, cpu.sizes(), cpu.strides(), cpu.dtype());
  // The block may have been freed while tasks that use it were still queued.
  if (!stream.idle()) host_wait(stream, stream.tail(), WaitReason::kOperator);
  copy_flags(cpu, t);
  if (reads_zeros()) return t;
  const HostAccess access;
  // Elements of an expanded tensor share their memory, which copy_() refuses to
  // write: it is taken over as it is.
  if (at::has_internal_overlap(cpu) == at::MemOverlap::Yes) {
    memcpy(t.mutable_data_ptr(), cpu.const_data_ptr(),
           at::detail::computeStorageNbytes(cpu.sizes(), cpu.strides(),
                                            cpu.element_size()));
  } else {
    host_alias(t).copy_(cpu);
  }
  return t;
}

void call_sync(const Op& op, torch::jit::Stack& stack, Stream& stream) {
  const Op::Schema& schema = op.schema();
  argument_ends_beyond_storage(op, stack, /*raises=*/true);
  forbid_wait(stream, schema.full_name,
              "this operator waits for its arguments, because its result's "
              "shape depends on their values or nothing else can run it; use "
              "one with a fixed shape, or call it outside the capture (if it "
              "is only slow the first time, a warm-up call is enough)");
  host_wait(stream, stream.tail(), WaitReason::kOperator,
            schema.full_name.c_str());
  raise_if_failed(stream);
  if (observed(Observer::kTasks)) [[unlikely]]
    tell_arguments(op, stack, stream);
  const HostAccess access;
  std::vector<Alias> aliases;
  StandIns storages(reads_zeros() ? StandIns::Memory::kZeros
                                  : StandIns::Memory::kShared);
  std::unordered_map<c10::TensorImpl*, size_t> index;
  c10::DispatchKeySet backend(c10::DispatchKey::CPU);
  auto to_alias = [&](const at::Tensor& t) {
    if (is_sparse_or_nested(t))
      backend = backend | c10::DispatchKeySet(cpu_key_of(t));
    if (t.device().type() != kNpu) return t;
    const auto [at, is_new] =
        index.try_emplace(t.unsafeGetTensorImpl(), aliases.size());
    if (is_new) aliases.push_back(alias_of(t, storages));
    return aliases[at->second].cpu;
  };
  c10::IValue generator;
  for (size_t i = 0; i < stack.size(); ++i)
    if (schema.kinds[i] == ArgKind::kGenerator)
      generator = seeded_generator(
          reserve(stack[i].toOptional<at::Generator>(), stream.device()));
  torch::jit::Stack mapped =
      map_stack(schema, stack, {to_alias, c10::Device(c10::kCPU), generator});
  if (schema.has_generator && aliases.empty()) check_generator(stack);
  // Some sparse kernels compute more where a gradient is required.
  if (backend != c10::DispatchKeySet(c10::DispatchKey::CPU))
    for (const Alias& alias : aliases)
      if (alias.npu.requires_grad()) alias.cpu.set_requires_grad(true);
  int64_t ndim = 0;
  for (const Alias& alias : aliases) ndim = std::max(ndim, alias.npu.dim());
  {
    KernelMode mode;
    ThreadsInPlaceOf threads(stream, size_of_large(op.name, ndim));
    RunsOnCaller profiled(stream, schema.full_name.c_str());
    schema.handle.redispatchBoxed(backend, &mapped);
  }
  for (const Alias& alias : aliases) {
    if (alias.parts.empty()) {
      take_over(alias, stream);
    } else {
      take_over_parts(alias, aliases, stream);
    }
  }
  // A result that is one of the arguments is returned as that argument.
  auto back = [&](const at::Tensor& t) {
    for (const Alias& alias : aliases)
      if (t.is_same(alias.cpu)) return alias.npu;
    return is_sparse_or_nested(t) ? parts_to_device(t, aliases, stream)
                                  : to_device(t, stream);
  };
  stack.clear();
  for (c10::IValue& result : mapped) {
    if (result.isTensor() && result.toTensor().defined()) {
      stack.emplace_back(back(result.toTensor()));
    } else if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : result.toTensorVector())
        list.push_back(back(t));
      stack.emplace_back(std::move(list));
    } else {
      stack.push_back(std::move(result));
    }
  }
}

}  // namespace npu
