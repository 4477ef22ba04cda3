#include "csrc/ops/plan.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <atomic>

#include "csrc/ops/kernel_mode.h"
#include "csrc/ops/kernel_size.h"
#include "csrc/ops/unmarked_writes.h"
#include "csrc/torch/error.h"
#include "csrc/torch/kernel_warnings.h"
#include "csrc/torch/scratch_memory.h"
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

std::atomic<uint64_t> serials{0};
// Frames that belong to one plan; a few KB each.
std::atomic<int> own_frames{0};
constexpr int kMostOwnFrames = 1024;

}  // namespace

// The size and alignment of npu_view let views and words share one block.
static_assert(sizeof(npu_view) % sizeof(uint64_t) == 0 &&
              alignof(npu_view) <= alignof(uint64_t));
constexpr size_t kViewWords = sizeof(npu_view) / sizeof(uint64_t);

Plan::Plan(std::shared_ptr<Family> family, at::ArrayRef<c10::IValue> arguments,
           const Key& key, std::vector<OutSpec> out_specs)
    : npu_kernel{&run_frame<&Frame::run>, family->op.schema().full_name.c_str(),
                 nullptr, 0},
      outs(with_bytes(std::move(out_specs))),
      random_word(key.random_word),
      family_(std::move(family)),
      // Relaxed: a number that nobody else gets.
      serial_(serials.fetch_add(1, std::memory_order_relaxed) + 1),
      threads_(key.threads) {
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
  const Op::Schema& schema = family_->op.schema();
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
  cut_ = cut_of(family_->op, arguments, all);
  size_ = cut_ ? KernelSize::kSmall : kernel_size(family_->op, arguments, all);
  bytes_ = sizeof(Plan) + outs.size() * sizeof(OutSpec) +
           block_words_ * sizeof(uint64_t);
  if (family_.use_count() == 1)
    bytes_ += Frame::bytes(schema.kinds.size(), n_views);
}

Plan::Plan(const Plan& other, std::shared_ptr<Family> family)
    : npu_kernel{&run_frame<&Frame::run_again>, other.npu_kernel::name, nullptr,
                 0},
      outs(other.outs),
      n_words(other.n_words),
      random_word(other.random_word),
      family_(std::move(family)),
      // Relaxed: a number that nobody else gets.
      serial_(serials.fetch_add(1, std::memory_order_relaxed) + 1),
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
  // Relaxed: a count.
  if (own_) own_frames.fetch_sub(1, std::memory_order_relaxed);
}

void Plan::make_own_frame() {
  // Relaxed: a count.
  own_frames.fetch_add(1, std::memory_order_relaxed);
  own_ = std::make_unique<Frame>(family_->op, key(), outs);
}

Frame& Plan::frame() {
  // A plan that keeps taking the frame over from others gets one of its own, so
  // that a program which repeats its shapes need not set them again and again.
  constexpr uint8_t kMostAdoptions = 8;
  if (!own_) {
    std::unique_ptr<Frame>& shared = family_->frame;
    if (!shared) [[unlikely]]
      shared = std::make_unique<Frame>(family_->op, key(), outs);
    if (shared->holds() == serial_ && !shared->runs()) return *shared;
    // A shared frame whose kernel launched this very task must not be touched.
    // Relaxed: a count.
    if (!shared->runs() &&
        (adoptions_ < kMostAdoptions ||
         own_frames.load(std::memory_order_relaxed) >= kMostOwnFrames)) {
      if (adoptions_ < kMostAdoptions) ++adoptions_;
      shared->adopt(serial_, {views, n_views}, key());
      return *shared;
    }
    make_own_frame();
  }
  if (own_->holds() != serial_) [[unlikely]]
    own_->adopt(serial_, {views, n_views}, key());
  return *own_;
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
    LaunchState::set_flush_denormal(plan.flushes_denormal_);
    if (plan.cut_ && run_in_pieces({*plan.family_,
                                    plan.serial_,
                                    plan.cut_,
                                    {plan.views, plan.n_views},
                                    plan.key(),
                                    words}))
      return NPU_OK;
    (plan.frame().*kRun)(words);
    return NPU_OK;
  } catch (...) {
    return describe_exception(*failure);
  }
}

bool Plan::is_plan(const npu_kernel* kernel) {
  return kernel->run == &run_frame<&Frame::run>;
}

std::unique_ptr<Plan> Plan::for_graph() const {
  return std::unique_ptr<Plan>(
      new Plan(*this, std::make_shared<Family>(family_->op, family_->outs)));
}

}  // namespace npu
