#include "csrc/ops/plan.h"

#include <ATen/EmptyTensor.h>

#include "csrc/ops/kernel_mode.h"
#include "csrc/ops/result_memory.h"
#include "csrc/ops/stack_map.h"
#include "csrc/ops/unmarked_writes.h"
#include "csrc/stats/segment.h"
#include "csrc/torch/error.h"
#include "csrc/torch/scratch_memory.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

// Words that a boxed argument takes, besides those of its tensors.
uint32_t words_of(ArgKind kind, const c10::IValue& value) {
  if (kind == ArgKind::kGenerator) return 2;
  if (value.isNone()) return 0;
  if (kind == ArgKind::kScalar) return 2;
  if (kind == ArgKind::kFloat) return 1;
  if (kind == ArgKind::kScalarList)
    return uint32_t(2 * value.toListRef().size());
  return 0;
}

// A 0-dim cpu tensor of the same type; its value travels in the words.
at::Tensor placeholder(const at::Tensor& t) {
  at::Tensor same = at::detail::empty_cpu({}, t.scalar_type(), {}, {}, {}, {});
  copy_flags(t, same);
  return same;
}

}  // namespace

Plan::Plan(const Op& op, at::ArrayRef<c10::IValue> arguments,
           std::vector<OutSpec> out_specs)
    : npu_kernel{&run_frame<&Frame::run>, op.schema().full_name.c_str(),
                 nullptr, 0},
      outs(std::move(out_specs)),
      op_(op) {
  ResultMemory::install();
  publish_name(npu_kernel::name);
  const Op::Schema& schema = op.schema();
  uint32_t word = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const uint8_t access = access_of(schema, i, arguments);
    // Mapping visits the tensors in the order of their words.
    const auto mapped = map_stack(schema, i, arguments[i],
                                  {[&](const at::Tensor& t) {
                                     if (t.device().is_cpu()) {
                                       word += 2;
                                       return placeholder(t);
                                     }
                                     at::Tensor shape = to_meta(t);
                                     add_view(shape, word++, access);
                                     return shape;
                                   },
                                   c10::Device(c10::kCPU), c10::IValue()});
    if (schema.kinds[i] == ArgKind::kGenerator) random_word = int(word);
    word += words_of(schema.kinds[i], arguments[i]);
    arguments_.push_back(mapped);
  }
  n_key_words = word;
  for (const OutSpec& spec : outs)
    if (spec.defined)
      add_view(at::detail::empty_strided_meta(spec.sizes, spec.strides,
                                              spec.dtype.toScalarType()),
               word++, NPU_WRITE);
  n_words = word;
  npu_kernel::views = views_.data();
  npu_kernel::n_views = uint32_t(views_.size());
}

void Plan::add_view(const at::Tensor& shape, uint32_t word, uint8_t access) {
  // The grain size below which torch's own element-wise loops stay serial.
  constexpr int64_t kSmall = 32768;
  if (shape.numel() > kSmall) size_ = KernelSize::kLarge;
  shapes_.push_back(shape);
  views_.push_back({shape.sizes().data(), shape.strides().data(),
                    uint16_t(shape.dim()), uint16_t(shape.itemsize()),
                    uint16_t(word), access});
}

// One launcher, or one replay at a time, runs a plan.
template <void (Frame::*kRun)(const uint64_t*)>
int Plan::run_frame(const npu_kernel* kernel, const uint64_t* words,
                    npu_failure* failure) {
  Plan& plan = *const_cast<Plan*>(static_cast<const Plan*>(kernel));
  try {
    KernelMode mode;
    RunsKernel here;
    use_threads_for(plan.size_);
    LaunchState::set_flush_denormal(plan.flushes_denormal_);
    if (!plan.frame_) [[unlikely]]
      plan.frame_ =
          std::make_unique<Frame>(plan.op_, plan.arguments_, plan.outs);
    (*plan.frame_.*kRun)(words);
    return NPU_OK;
  } catch (...) {
    return describe_exception(*failure);
  }
}

bool Plan::is_plan(const npu_kernel* kernel) {
  return kernel->run == &run_frame<&Frame::run>;
}

std::unique_ptr<Plan> Plan::for_graph() const {
  auto plan = std::make_unique<Plan>(op_, arguments_, outs);
  plan->npu_kernel::run = &run_frame<&Frame::run_again>;
  plan->flushes_denormal_ = flushes_denormal_;
  return plan;
}

}  // namespace npu
