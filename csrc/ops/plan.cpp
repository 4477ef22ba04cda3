#include "csrc/ops/plan.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "csrc/ops/kernel_mode.h"
#include "csrc/ops/kernel_size.h"
#include "csrc/ops/result_memory.h"
#include "csrc/ops/stack_map.h"
#include "csrc/ops/unmarked_writes.h"
#include "csrc/stats/segment.h"
#include "csrc/torch/error.h"
#include "csrc/torch/kernel_warnings.h"
#include "csrc/torch/scratch_memory.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

// How many words a boxed argument takes, besides those of its tensors.
uint32_t words_of(ArgKind kind, const c10::IValue& value) {
  if (kind == ArgKind::kGenerator) return 2;
  if (value.isNone()) return 0;
  if (kind == ArgKind::kScalar) return 2;
  if (kind == ArgKind::kFloat) return 1;
  if (kind == ArgKind::kScalarList)
    return uint32_t(2 * value.toListRef().size());
  return 0;
}

bool same_number(const c10::IValue& a, const c10::IValue& b) {
  if (a.isInt()) return b.isInt() && a.toInt() == b.toInt();
  if (a.isBool()) return b.isBool() && a.toBool() == b.toBool();
  return false;
}

bool same_numbers(const c10::IValue& a, const c10::IValue& b) {
  if (!a.isList() || !b.isList()) return false;
  const auto one = a.toListRef(), other = b.toListRef();
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    same_number);
}

// The part of an argument that is neither a tensor nor in the words. `known`:
// the same argument of another call of the identity, which owns its lists.
c10::IValue constant_of(ArgKind kind, const c10::IValue& value,
                        const c10::IValue& known) {
  switch (kind) {
    case ArgKind::kTensor:
    case ArgKind::kTensorList:
    case ArgKind::kOptionalTensorList:
    case ArgKind::kScalar:
    case ArgKind::kScalarList:
    case ArgKind::kFloat:
    case ArgKind::kGenerator:
      return {};
    // A list is shared with its maker, who may change it, so it is copied.
    case ArgKind::kInts:
    case ArgKind::kBools:
      if (same_numbers(value, known)) return known;
      [[fallthrough]];
    case ArgKind::kFloats:
      if (value.isIntList()) return value.toIntList().copy();
      return value.deepcopy();
    default:
      return value;
  }
}

bool is_number_list(ArgKind kind) {
  return kind == ArgKind::kInts || kind == ArgKind::kBools ||
         kind == ArgKind::kFloats;
}

// A 0-dim cpu tensor of the same type; its value travels in the words.
at::Tensor placeholder(const at::Tensor& t) {
  at::Tensor same = at::detail::empty_cpu({}, t.scalar_type(), {}, {}, {}, {});
  copy_flags(t, same);
  return same;
}

torch::jit::Stack without_memory(const Op& op,
                                 at::ArrayRef<c10::IValue> arguments) {
  const Op::Schema& schema = op.schema();
  // A written tensor stays one tensor wherever else it is passed, as the key
  // says (overlap.h).
  std::unordered_map<const c10::TensorImpl*, at::Tensor> written;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (schema.writes[i] && schema.kinds[i] == ArgKind::kTensor &&
        arguments[i].isTensor() && (i >= 32 || op.compared >> i & 1))
      written.try_emplace(arguments[i].toTensor().unsafeGetTensorImpl());
  torch::jit::Stack own =
      map_stack(schema, arguments,
                {[&](const at::Tensor& t) {
                   if (t.is_meta()) return t;
                   if (t.device().is_cpu()) return placeholder(t);
                   const auto one = written.find(t.unsafeGetTensorImpl());
                   if (one == written.end()) return to_meta(t);
                   if (!one->second.defined()) one->second = to_meta(t);
                   return one->second;
                 },
                 c10::Device(c10::kCPU), c10::IValue()});
  for (size_t i = 0; i < own.size(); ++i)
    if (is_number_list(schema.kinds[i])) own[i] = own[i].deepcopy();
  return own;
}

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

Family::Family(const Op& op, at::ArrayRef<c10::IValue> arguments,
               std::vector<OutSpec> outs)
    : op(op), arguments(without_memory(op, arguments)), outs(std::move(outs)) {
  ResultMemory::install();
  publish_name(op.schema().full_name.c_str());
}

bool Family::suits(const std::vector<OutSpec>& others) const {
  if (outs.size() != others.size()) return false;
  for (size_t i = 0; i < outs.size(); ++i)
    if (outs[i].defined != others[i].defined ||
        outs[i].dtype != others[i].dtype ||
        outs[i].sizes.size() != others[i].sizes.size())
      return false;
  return true;
}

// The size and alignment of npu_view let views and words share one block.
static_assert(sizeof(npu_view) % sizeof(uint64_t) == 0 &&
              alignof(npu_view) <= alignof(uint64_t));
constexpr size_t kViewWords = sizeof(npu_view) / sizeof(uint64_t);

struct Plan::Room {
  npu_view* view;
  int64_t* extents;
};

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
  const Op::Schema& schema = family_->op.schema();
  size_t views = 0, extents = 0;
  const auto count = [&](size_t rank) {
    ++views;
    extents += 2 * rank;
  };
  for_each_tensor(schema, arguments, [&](const at::Tensor& t, size_t) {
    if (!t.device().is_cpu()) count(size_t(t.dim()));
  });
  for (const OutSpec& spec : outs)
    if (spec.defined) count(spec.sizes.size());
  key_words_ = uint32_t(key.key.size());
  block_words_ = uint32_t(views * kViewWords + extents) + key_words_;
  block_ = std::make_unique_for_overwrite<uint64_t[]>(block_words_);
  npu_kernel::views = reinterpret_cast<npu_view*>(block_.get());
  memcpy(block_.get() + block_words_ - key_words_, key.key.data(),
         key_words_ * sizeof(uint64_t));

  Room room{reinterpret_cast<npu_view*>(block_.get()),
            reinterpret_cast<int64_t*>(block_.get() + views * kViewWords)};
  uint32_t word = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ArgKind kind = schema.kinds[i];
    const uint8_t access = access_of(schema, i, arguments);
    for_each_tensor(schema, i, arguments[i], [&](const at::Tensor& t) {
      if (t.device().is_cpu()) {
        word += 2;
      } else {
        add_view(room, t.sizes(), t.strides(), t.itemsize(), word++, access);
      }
    });
    word += words_of(kind, arguments[i]);
    c10::IValue constant =
        constant_of(kind, arguments[i], family_->arguments[i]);
    if (constant.isNone()) continue;
    if (constants_.empty()) constants_.resize(arguments.size());
    constants_[i] = std::move(constant);
  }
  TORCH_INTERNAL_ASSERT(key.words.size() == word, npu_kernel::name,
                        ": encoded ", key.words.size(), " words, planned ",
                        word);
  for (const OutSpec& spec : outs)
    if (spec.defined)
      add_view(room, spec.sizes, spec.strides, spec.dtype.itemsize(), word++,
               NPU_WRITE);
  n_words = word;
  const at::ArrayRef<npu_view> all(npu_kernel::views, n_views);
  cut_ = cut_of(family_->op, arguments, all);
  size_ = cut_ ? KernelSize::kSmall
               : kernel_size(family_->op, family_->arguments, all);
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
      constants_(other.constants_),
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

size_t Plan::bytes() const {
  return sizeof(Plan) + outs.size() * sizeof(OutSpec) +
         constants_.size() * sizeof(c10::IValue) +
         block_words_ * sizeof(uint64_t);
}

void Plan::add_view(Room& room, at::IntArrayRef sizes, at::IntArrayRef strides,
                    size_t itemsize, uint32_t word, uint8_t access) {
  const size_t rank = sizes.size();
  std::copy_n(sizes.data(), rank, room.extents);
  std::copy_n(strides.data(), rank, room.extents + rank);
  *room.view++ = {room.extents,       room.extents + rank, uint16_t(rank),
                  uint16_t(itemsize), uint16_t(word),      access};
  room.extents += 2 * rank;
  ++n_views;
}

void Plan::make_own_frame() {
  // Relaxed: a count.
  own_frames.fetch_add(1, std::memory_order_relaxed);
  own_ =
      std::make_unique<Frame>(family_->op, family_->arguments, family_->outs);
}

Frame& Plan::frame() {
  // A plan that keeps taking the frame over from others gets one of its own, so
  // that a program which repeats its shapes need not set them again and again.
  constexpr uint8_t kMostAdoptions = 8;
  if (!own_) {
    std::unique_ptr<Frame>& shared = family_->frame;
    if (!shared) [[unlikely]]
      shared = std::make_unique<Frame>(family_->op, family_->arguments,
                                       family_->outs);
    if (shared->holds() == serial_ && !shared->runs()) return *shared;
    // A shared frame whose kernel launched this very task must not be touched.
    // Relaxed: a count.
    if (!shared->runs() &&
        (adoptions_ < kMostAdoptions ||
         own_frames.load(std::memory_order_relaxed) >= kMostOwnFrames)) {
      if (adoptions_ < kMostAdoptions) ++adoptions_;
      shared->adopt(serial_, {views, n_views}, constants_);
      return *shared;
    }
    make_own_frame();
  }
  if (own_->holds() != serial_) [[unlikely]]
    own_->adopt(serial_, {views, n_views}, constants_);
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
                                    plan.constants_,
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
  return std::unique_ptr<Plan>(new Plan(*this, family_->copy()));
}

}  // namespace npu
