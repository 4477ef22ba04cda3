#include "csrc/ops/sync_call.h"

#include <ATen/ops/copy.h>

#include <unordered_map>

#include "csrc/graph/capture.h"
#include "csrc/ops/kernel_mode.h"
#include "csrc/ops/stack_map.h"
#include "csrc/taskqueue/profile.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/host_use.h"
#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

struct Alias {
  at::Tensor npu, cpu;
  const void* memory;  // of `cpu` when it was made
};

// What the operator reads and writes, for the observer.
void tell_arguments(Observer& observer, const Op& op,
                    const torch::jit::Stack& stack, Stream& stream) {
  const Op::Schema& schema = op.schema();
  std::vector<HostUse> uses;
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t argument) {
    if (is_npu(t))
      uses.push_back({t, uint8_t(schema.writes[argument] ? NPU_READ | NPU_WRITE
                                                         : NPU_READ)});
  });
  tell_host_use(observer, stream, schema.full_name.c_str(), uses);
}

// An out= argument that the kernel resized has memory of its own now.
void take_over(const Alias& alias) {
  settle_conj(alias.cpu, alias.npu.is_conj());
  if (alias.cpu.sizes() != alias.npu.sizes())
    resize_tensor(alias.npu, alias.cpu.sizes(), alias.cpu.strides());
  if (alias.cpu.const_data_ptr() != alias.memory && alias.cpu.numel())
    host_alias(alias.npu).copy_(alias.cpu);
}

}  // namespace

at::Tensor to_device(const at::Tensor& cpu, Stream& stream) {
  if (!cpu.defined()) return cpu;
  TORCH_CHECK_NOT_IMPLEMENTED(cpu.layout() == at::kStrided,
                              "npu: results of layout ", cpu.layout(),
                              " are not supported; move the inputs to cpu");
  at::Tensor t = make_tensor(stream, cpu.sizes(), cpu.strides(), cpu.dtype());
  // The block may have been freed with tasks that still use it queued.
  if (!stream.idle()) host_wait(stream, stream.tail(), WaitReason::kOperator);
  copy_flags(cpu, t);
  host_alias(t).copy_(cpu);
  return t;
}

void call_sync(const Op& op, torch::jit::Stack& stack, Stream& stream) {
  const Op::Schema& schema = op.schema();
  forbid_wait(stream, schema.full_name,
              "this operator waits for its arguments, because its result's "
              "shape depends on their values or nothing else can run it; use "
              "one with a fixed shape, or call it outside the capture (if it "
              "is only slow the first time, a warm-up call is enough)");
  host_wait(stream, stream.tail(), WaitReason::kOperator,
            schema.full_name.c_str());
  raise_if_failed(stream);
  if (Observer* o = observer()) [[unlikely]]
    tell_arguments(*o, op, stack, stream);
  std::vector<Alias> aliases;
  std::unordered_map<c10::TensorImpl*, size_t> index;
  auto to_alias = [&](const at::Tensor& t) {
    if (!is_npu(t)) return t;
    const auto [at, is_new] =
        index.try_emplace(t.unsafeGetTensorImpl(), aliases.size());
    if (is_new) {
      at::Tensor cpu = host_alias(t);
      aliases.push_back({t, cpu, cpu.const_data_ptr()});
    }
    return aliases[at->second].cpu;
  };
  c10::IValue generator;
  for (size_t i = 0; i < stack.size(); ++i)
    if (schema.kinds[i] == ArgKind::kGenerator)
      generator = seeded_generator(
          reserve(stack[i].toOptional<at::Generator>(), stream.device()));
  torch::jit::Stack mapped =
      map_stack(schema, stack, {to_alias, c10::Device(c10::kCPU), generator});
  {
    KernelMode mode;
    RunsOnCaller profiled(stream, schema.full_name.c_str());
    schema.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU),
                                  &mapped);
  }
  for (const Alias& alias : aliases) take_over(alias);
  // A result that is one of the arguments is returned as that argument.
  auto back = [&](const at::Tensor& t) {
    for (const Alias& alias : aliases)
      if (t.is_same(alias.cpu)) return alias.npu;
    return to_device(t, stream);
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
