#include "csrc/ops/plan.h"

#include <ATen/EmptyTensor.h>

#include <atomic>
#include <unordered_map>

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

// What of an argument neither travels in the words nor is a tensor.
c10::IValue constant_of(ArgKind kind, const c10::IValue& value) {
  switch (kind) {
    case ArgKind::kTensor:
    case ArgKind::kTensorList:
    case ArgKind::kOptionalTensorList:
    case ArgKind::kScalar:
    case ArgKind::kScalarList:
    case ArgKind::kFloat:
    case ArgKind::kGenerator:
      return {};
    // Lists are shared with whoever made them, and may be changed there.
    case ArgKind::kInts:
    case ArgKind::kBools:
    case ArgKind::kFloats:
      return value.deepcopy();
    default:
      return value;
  }
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
  // One that is written is the same tensor wherever else it is passed: the key
  // says so (overlap.h).
  std::unordered_map<const c10::TensorImpl*, at::Tensor> written;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (schema.writes[i] && schema.kinds[i] == ArgKind::kTensor &&
        arguments[i].isTensor() && (i >= 32 || op.compared >> i & 1))
      written.try_emplace(arguments[i].toTensor().unsafeGetTensorImpl());
  return map_stack(schema, arguments,
                   {[&](const at::Tensor& t) {
                      if (t.is_meta()) return t;
                      if (t.device().is_cpu()) return placeholder(t);
                      const auto one = written.find(t.unsafeGetTensorImpl());
                      if (one == written.end()) return to_meta(t);
                      if (!one->second.defined()) one->second = to_meta(t);
                      return one->second;
                    },
                    c10::Device(c10::kCPU), c10::IValue()});
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
    : op(op), arguments(without_memory(op, arguments)), outs(std::move(outs)) {}

bool Family::suits(const std::vector<OutSpec>& others) const {
  if (outs.size() != others.size()) return false;
  for (size_t i = 0; i < outs.size(); ++i)
    if (outs[i].defined != others[i].defined ||
        outs[i].dtype != others[i].dtype ||
        outs[i].sizes.size() != others[i].sizes.size())
      return false;
  return true;
}

Plan::Plan(std::shared_ptr<Family> family, at::ArrayRef<c10::IValue> arguments,
           const Key& key, std::vector<OutSpec> out_specs)
    : npu_kernel{&run_frame<&Frame::run>, family->op.schema().full_name.c_str(),
                 nullptr, 0},
      outs(with_bytes(std::move(out_specs))),
      random_word(key.random_word),
      family_(std::move(family)),
      // Relaxed: a number that nobody else gets.
      serial_(serials.fetch_add(1, std::memory_order_relaxed) + 1) {
  ResultMemory::install();
  publish_name(npu_kernel::name);
  const Op::Schema& schema = family_->op.schema();
  uint32_t word = 0;
  constants_.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const uint8_t access = access_of(schema, i, arguments);
    for_each_tensor(schema, i, arguments[i], [&](const at::Tensor& t) {
      if (t.device().is_cpu()) {
        word += 2;
      } else {
        add_view(t.sizes(), t.strides(), t.itemsize(), word++, access);
      }
    });
    word += words_of(schema.kinds[i], arguments[i]);
    constants_.push_back(constant_of(schema.kinds[i], arguments[i]));
  }
  TORCH_INTERNAL_ASSERT(key.words.size() == word, npu_kernel::name,
                        ": encoded ", key.words.size(), " words, planned ",
                        word);
  for (const OutSpec& spec : outs)
    if (spec.defined)
      add_view(spec.sizes, spec.strides, spec.dtype.itemsize(), word++,
               NPU_WRITE);
  n_words = word;
  set_views();
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
      flushes_denormal_(other.flushes_denormal_),
      constants_(other.constants_),
      extents_(other.extents_),
      views_(other.views_) {
  set_views();
}

Plan::~Plan() {
  // Relaxed: a count.
  if (own_) own_frames.fetch_sub(1, std::memory_order_relaxed);
}

size_t Plan::bytes() const {
  size_t bytes = sizeof(Plan) + outs.size() * sizeof(OutSpec) +
                 constants_.size() * sizeof(c10::IValue) +
                 extents_.size() * sizeof(int64_t) +
                 views_.size() * sizeof(npu_view);
  for (const OutSpec& spec : outs)
    bytes += 2 * (spec.sizes.size() * sizeof(int64_t) + 16);
  return bytes;
}

void Plan::add_view(at::IntArrayRef sizes, at::IntArrayRef strides,
                    size_t itemsize, uint32_t word, uint8_t access) {
  // The grain size below which torch's own element-wise loops stay serial.
  if (c10::multiply_integers(sizes) > kSmallKernel) size_ = KernelSize::kLarge;
  extents_.insert(extents_.end(), sizes.begin(), sizes.end());
  extents_.insert(extents_.end(), strides.begin(), strides.end());
  views_.push_back({nullptr, nullptr, uint16_t(sizes.size()),
                    uint16_t(itemsize), uint16_t(word), access});
}

void Plan::set_views() {
  const int64_t* at = extents_.data();
  for (npu_view& view : views_) {
    view.sizes = at;
    view.strides = at + view.ndim;
    at += 2 * view.ndim;
  }
  npu_kernel::views = views_.data();
  npu_kernel::n_views = uint32_t(views_.size());
}

void Plan::make_own_frame() {
  // Relaxed: a count.
  own_frames.fetch_add(1, std::memory_order_relaxed);
  own_ =
      std::make_unique<Frame>(family_->op, family_->arguments, family_->outs);
}

Frame& Plan::frame() {
  // A plan that keeps taking the frame from others gets one of its own: a
  // program that repeats its shapes is to set none.
  constexpr uint8_t kMostAdoptions = 8;
  if (!own_) {
    std::unique_ptr<Frame>& shared = family_->frame;
    if (!shared) [[unlikely]]
      shared = std::make_unique<Frame>(family_->op, family_->arguments,
                                       family_->outs);
    if (shared->holds() == serial_ && !shared->runs()) return *shared;
    // One whose kernel launched this very task is not to be touched.
    // Relaxed: a count.
    if (!shared->runs() &&
        (adoptions_ < kMostAdoptions ||
         own_frames.load(std::memory_order_relaxed) >= kMostOwnFrames)) {
      if (adoptions_ < kMostAdoptions) ++adoptions_;
      shared->adopt(serial_, views_, constants_);
      return *shared;
    }
    make_own_frame();
  }
  if (own_->holds() != serial_) [[unlikely]]
    own_->adopt(serial_, views_, constants_);
  return *own_;
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
