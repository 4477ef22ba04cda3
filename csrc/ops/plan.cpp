#include "csrc/ops/plan.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "csrc/base/hooks.h"
#include "csrc/host/kernel_mode.h"
#include "csrc/host/kernel_size.h"
#include "csrc/host/result_memory.h"
#include "csrc/host/scratch_memory.h"
#include "csrc/ops/unmarked_writes.h"
#include "csrc/torch/error.h"
#include "csrc/torch/kernel_warnings.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

std::vector<OutSpec> with_bytes(std::vector<OutSpec> outs) {
  for (OutSpec& spec : outs)
    if (spec.defined)
      spec.bytes = at::detail::computeStorageNbytes(spec.sizes, spec.strides,
                                                    spec.dtype.itemsize());
  return outs;
}

bool works_on_lists(const Op::Schema& schema) {
  return schema.on_each &&
         std::none_of(schema.kinds.begin(), schema.kinds.end(), [](ArgKind k) {
           return k == ArgKind::kTensor || k == ArgKind::kOptionalTensorList;
         });
}

// Frames of dead plans, for launchers to free: memory that one thread takes and
// another one gives back costs both a lock of the heap's. Takes no memory.
class DeadFrames {
 public:
  void add(std::unique_ptr<Frame> frame) noexcept {
    std::lock_guard lock(mutex_);
    // Else it is freed by the caller.
    if (count_ < frames_.size()) frames_[count_++] = std::move(frame);
  }
  std::unique_ptr<Frame> take() {
    std::lock_guard lock(mutex_);
    return count_ ? std::move(frames_[--count_]) : nullptr;
  }

 private:
  std::mutex mutex_;
  std::array<std::unique_ptr<Frame>, 1024> frames_;
  size_t count_ = 0;
};
// Threads outlive static destruction.
DeadFrames& dead_frames_ = *new DeadFrames;

}  // namespace

void free_frames() {
  while (dead_frames_.take()) {
  }
}

// The size and alignment of npu_view let views and words share one block.
static_assert(sizeof(npu_view) % sizeof(uint64_t) == 0 &&
              alignof(npu_view) <= alignof(uint64_t));
constexpr size_t kViewWords = sizeof(npu_view) / sizeof(uint64_t);

Plan::Plan(const Op& op, at::ArrayRef<c10::IValue> arguments, const Key& key,
           std::vector<OutSpec> out_specs)
    : npu_kernel{&run_frame<&Frame::run>, op.schema().full_name.c_str(),
                 nullptr, 0},
      outs(with_bytes(std::move(out_specs))),
      random_word(key.random_word),
      op_(op),
      threads_(key.threads) {
  ResultMemory::install();
  size_t numbers = 0;
  n_words = read_key(key.key.all(), [&](const Part& part) {
    if (part.tag() != Tag::kTensor) return;
    ++n_views;
    if (part.is_default()) numbers += part.rank();
  });
  for (const OutSpec& spec : outs)
    if (spec.defined) {
      ++n_views;
      numbers += 2 * spec.sizes.size();
    }
  key_words_ = uint32_t(key.key.size());
  block_words_ = uint32_t(n_views * kViewWords + numbers) + key_words_;
  block_ = std::make_unique_for_overwrite<uint64_t[]>(block_words_);
  auto* view = reinterpret_cast<npu_view*>(block_.get());
  npu_kernel::views = view;
  auto* room = reinterpret_cast<int64_t*>(block_.get() + n_views * kViewWords);
  memcpy(block_.get() + block_words_ - key_words_, key.key.data(),
         key_words_ * sizeof(uint64_t));

  const auto copy = [&](at::IntArrayRef from) {
    const int64_t* const to = room;
    room = std::copy(from.begin(), from.end(), room);
    return to;
  };
  const Op::Schema& schema = op.schema();
  read_key(this->key(), [&](const Part& part) {
    if (part.tag() != Tag::kTensor) return;
    *view++ = {part.sizes().data(),
               part.is_default() ? copy(default_strides(part.sizes()))
                                 : part.strides().data(),
               uint32_t(part.rank()),
               uint32_t(c10::elementSize(part.dtype())),
               part.word,
               access_of(schema, size_t(part.argument), arguments)};
  });
  for (const OutSpec& spec : outs)
    if (spec.defined)
      *view++ = {copy(spec.sizes),
                 copy(spec.strides),
                 uint32_t(spec.sizes.size()),
                 uint32_t(spec.dtype.itemsize()),
                 n_words++,
                 NPU_WRITE};
  const at::ArrayRef<npu_view> all(npu_kernel::views, n_views);
  const bool element_wise = op.meta == Meta::kElementWise;
  cut_ = cut_of(
      {op.name, element_wise, works_on_lists(schema), schema.has_generator},
      arguments, all);
  size_ = cut_ ? KernelSize::kSmall
               : kernel_size(op.name, element_wise, arguments, all);
  const size_t frames = cut_ ? size_t(threads_of_large_kernels()) : 1;
  bytes_ = sizeof(Plan) + outs.size() * sizeof(OutSpec) +
           block_words_ * sizeof(uint64_t) +
           frames * Frame::bytes(schema.kinds.size(), n_views);
}

Plan::Plan(const Plan& other)
    : npu_kernel{&run_frame<&Frame::run_again>, other.npu_kernel::name, nullptr,
                 0},
      outs(other.outs),
      n_words(other.n_words),
      random_word(other.random_word),
      op_(other.op_),
      size_(other.size_),
      cut_(other.cut_),
      flushes_denormal_(other.flushes_denormal_),
      threads_(other.threads_),
      bytes_(other.bytes_),
      block_(std::make_unique_for_overwrite<uint64_t[]>(other.block_words_)),
      block_words_(other.block_words_),
      key_words_(other.key_words_) {
  memcpy(block_.get(), other.block_.get(), block_words_ * sizeof(uint64_t));
  auto* const views = reinterpret_cast<npu_view*>(block_.get());
  const auto own = [&](const int64_t* at) {
    return reinterpret_cast<int64_t*>(block_.get()) +
           (at - reinterpret_cast<const int64_t*>(other.block_.get()));
  };
  n_views = other.n_views;
  for (uint32_t i = 0; i < n_views; ++i) {
    views[i].sizes = own(views[i].sizes);
    views[i].strides = own(views[i].strides);
  }
  npu_kernel::views = views;
}

Plan::~Plan() {
  if (frame_) dead_frames_.add(std::move(frame_));
}

std::unique_ptr<Frame> Plan::make_frame() const {
  // Two, so that what was left in one go becomes less.
  for (int i = 0; i < 2; ++i) dead_frames_.take();
  return std::make_unique<Frame>(op_, key(), outs);
}

// Each piece is the same operator on a part of each tensor. False: one thread
// is to run the call, and nothing was done.
bool Plan::run_in_pieces(const uint64_t* words) {
  const int pieces = pieces_of(cut_);
  if (pieces < 2) return false;
  if (pieces_.size() != size_t(pieces)) [[unlikely]] {
    std::vector<std::unique_ptr<Frame>> made;
    for (int piece = 0; piece < pieces; ++piece) {
      std::vector<npu_view> own(views, views + n_views);
      std::vector<uint64_t> offsets;
      std::vector<at::DimVector> sizes;
      cut_views(cut_, piece, pieces, own, offsets, sizes);
      made.push_back(make_frame());
      made.back()->set_shapes(own, offsets);
    }
    pieces_ = std::move(made);
  }
  run_pieces(pieces, cut_.wakes,
             [&](int piece) { pieces_[size_t(piece)]->run(words); });
  return true;
}

// A plan is run by one launcher, or by one replay at a time.
template <void (Frame::*kRun)(const uint64_t*)>
int Plan::run_frame(const npu_kernel* kernel, const uint64_t* words,
                    npu_failure* failure) {
  Plan& plan = *const_cast<Plan*>(static_cast<const Plan*>(kernel));
  try {
    KernelMode mode;
    RunsKernel here;
    hear_kernel_warnings();
    use_threads_for(plan.size_, plan.threads_);
    flush_denormals(plan.flushes_denormal_);
    if (plan.cut_ && plan.run_in_pieces(words)) return NPU_OK;
    if (!plan.frame_) [[unlikely]]
      plan.frame_ = plan.make_frame();
    if (plan.frame_->runs()) [[unlikely]]  // its kernel has launched this task
      plan.make_frame()->run(words);
    else
      (*plan.frame_.*kRun)(words);
    return NPU_OK;
  } catch (...) {
    return describe_exception(*failure);
  }
}

// Tables may destroy their plans, so a node gets a copy; kernels of byte copies
// stay.
void Plan::give_to_graphs() {
  hooks.own_kernel = [](const npu_kernel* kernel) -> OwnKernel {
    if (kernel->run != &run_frame<&Frame::run>) return {nullptr, nullptr, -1};
    auto* const own = new Plan(*static_cast<const Plan*>(kernel));
    return {own, [](npu_kernel* plan) { delete static_cast<Plan*>(plan); },
            own->random_word};
  };
}

}  // namespace npu
