#include "csrc/torch/graph_program.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>

#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/storage_end.h"
#include "csrc/torch/tensor.h"
#include "csrc/torch/word_kernel.h"

namespace npu {
namespace {

// As torch's _reinterpret_tensor() makes it: no view to autograd.
at::Tensor alias(const at::Tensor& of, const Extents& extents, int64_t offset) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(of.storage()), of.key_set(),
      of.dtype());
  c10::TensorImpl* const impl = made.unsafeGetTensorImpl();
  impl->set_storage_offset(of.storage_offset() + offset);
  impl->set_sizes_and_strides(extents.sizes, extents.strides);
  return made;
}

at::Tensor empty(Stream& stream, int device, const Extents& extents,
                 at::ScalarType type) {
  if (at::globalContext().deterministicAlgorithms()) [[unlikely]]
    // Which may fill it.
    return at::empty_strided(
        extents.sizes, extents.strides,
        at::TensorOptions().dtype(type).device(kNpu, c10::DeviceIndex(device)));
  return make_tensor(stream, extents.sizes, extents.strides,
                     c10::scalarTypeToTypeMeta(type));
}

}  // namespace

void GraphProgram::allocate(uint32_t slot, Extents extents,
                            at::ScalarType type) {
  add(Kind::kAllocate, allocations_.size());
  allocations_.push_back({slot, std::move(extents), type});
}

void GraphProgram::view(uint32_t slot, uint32_t of, Extents extents,
                        int64_t offset) {
  add(Kind::kView, views_.size());
  views_.push_back({slot, of, std::move(extents), offset});
}

void GraphProgram::check(uint32_t slot, Extents extents) {
  add(Kind::kCheck, checks_.size());
  checks_.push_back({slot, std::move(extents)});
}

void GraphProgram::launch(const WordKernel& kernel, std::vector<uint64_t> words,
                          std::vector<Use> tensors) {
  add(Kind::kLaunch, launches_.size());
  launches_.push_back({&kernel, std::move(words), std::move(tensors)});
}

void GraphProgram::call(const c10::OperatorHandle& op,
                        torch::jit::Stack arguments, std::vector<Use> tensors,
                        std::vector<uint32_t> results) {
  add(Kind::kCall, calls_.size());
  calls_.push_back(
      {op, std::move(arguments), std::move(tensors), std::move(results)});
}

void GraphProgram::drop(uint32_t slot) { add(Kind::kDrop, slot); }

bool GraphProgram::takes(const Tensors& inputs) const {
  // A mode sees each operator, and a blocking stream may run kernels that need
  // the interpreter here.
  if (inputs.size() != inputs_ ||
      c10::impl::TorchDispatchModeTLS::any_modes_set() ||
      usable_stream(device_).waits_for_each_task())
    return false;
  for (const at::Tensor& t : inputs)
    if (!t.defined() || t.key_set().has(c10::DispatchKey::Python) ||
        !t.has_storage() || ends_beyond_storage(t) || t.is_conj() || t.is_neg())
      return false;
  return std::ranges::all_of(expected_, [&](const Expected& e) {
    return e.extents.match(inputs[e.slot]);
  });
}

void GraphProgram::run_launch(const Launch& launch, Stream& stream,
                              Tensors& slots) const {
  constexpr size_t kFew = 64;
  uint64_t few[kFew];
  std::vector<uint64_t> many;
  uint64_t* words = few;
  if (launch.words.size() > kFew) {
    many.resize(launch.words.size());
    words = many.data();
  }
  std::ranges::copy(launch.words, words);
  for (const Use& use : launch.tensors)
    words[use.argument] =
        reinterpret_cast<uint64_t>(slots[use.slot].data_ptr());
  if (!launch.kernel->submit(stream, words)) raise_stream_error(stream);
}

void GraphProgram::run_call(const Call& call, Tensors& slots) {
  torch::jit::Stack stack = call.arguments;
  for (const Use& use : call.tensors) stack[use.argument] = slots[use.slot];
  call.op.callBoxed(stack);
  for (size_t i = 0; i < call.results.size(); ++i)
    slots[call.results[i]] = std::move(stack[i]).toTensor();
}

GraphProgram::Tensors GraphProgram::run(Tensors slots) const {
  const c10::AutoGradMode no_gradients(false);
  // Buffers are the program's own, and inputs are never changed: nothing is to
  // be told to autograd.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::autocast_dispatch_keyset);
  Stream& stream = usable_stream(device_);
  slots.resize(slots_);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kAllocate: {
        const Allocation& a = allocations_[step.at];
        slots[a.slot] = empty(stream, device_, a.extents, a.type);
        break;
      }
      case Kind::kView: {
        const View& v = views_[step.at];
        slots[v.slot] = alias(slots[v.of], v.extents, v.offset);
        break;
      }
      case Kind::kCheck: {
        const Expected& c = checks_[step.at];
        TORCH_CHECK(c.extents.match(slots[c.slot]),
                    "npu: an operator returned a tensor of sizes ",
                    slots[c.slot].sizes(), " and strides ",
                    slots[c.slot].strides(), ", and the graph was made for ",
                    at::IntArrayRef(c.extents.sizes), " and ",
                    at::IntArrayRef(c.extents.strides));
        break;
      }
      case Kind::kLaunch:
        run_launch(launches_[step.at], stream, slots);
        break;
      case Kind::kCall:
        run_call(calls_[step.at], slots);
        break;
      case Kind::kDrop:
        slots[step.at].reset();
        break;
    }
  }
  Tensors results;
  results.reserve(results_.size());
  for (const int slot : results_)
    results.push_back(slot == kNone ? at::Tensor() : slots[size_t(slot)]);
  return results;
}

}  // namespace npu
