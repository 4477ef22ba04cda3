#include "csrc/ops/trial.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>

#include "csrc/ops/kernel_mode.h"
#include "csrc/ops/launch_state.h"
#include "csrc/ops/stack_map.h"
#include "csrc/ops/third_party.h"
#include "csrc/ops/value_class.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

constexpr int64_t kMaxElements = 1 << 16;

// What a verdict depends on besides the operator: dtypes, ranks, which
// optional arguments are there, flags and modes, classes of numbers.
using Kind = std::vector<int64_t>;

struct Known {
  std::mutex mutex;
  std::map<std::pair<const Op*, Kind>, Verdict> verdicts;

  void set(std::pair<const Op*, Kind> kind, Verdict verdict) {
    // A program whose kinds do not end, as of numbers that decide, tries some
    // of them twice.
    constexpr size_t kMost = 8192;
    std::lock_guard lock(mutex);
    if (verdicts.size() >= kMost)
      verdicts.erase(verdicts.upper_bound(kind) == verdicts.end()
                         ? verdicts.begin()
                         : verdicts.upper_bound(kind));
    verdicts[std::move(kind)] = verdict;
  }
};
Known& known() {
  static Known* const instance = new Known;
  return *instance;
}

// How a tensor lies in memory, as far as a result's layout may follow from it:
// 0 for a plain one, else the order of its strides.
int64_t layout_kind(const at::Tensor& t) {
  if (has_default_strides(*t.unsafeGetTensorImpl())) return 0;
  const at::IntArrayRef strides = t.strides();
  int64_t kind = 1 + t.is_contiguous() + 2 * t.is_non_overlapping_and_dense();
  for (size_t i = 0; i < strides.size(); ++i) {
    int64_t below = 0;
    for (size_t k = 0; k < strides.size(); ++k)
      below += strides[k] < strides[i] || (strides[k] == strides[i] && k < i);
    kind = kind * 8 + below;
  }
  return kind;
}

void add_number(Kind& kind, const Op& op, const at::Scalar& s) {
  const double value = s.isComplex() ? 0 : s.toDouble();
  kind.push_back(-1000 - int64_t(s.type()) * 256 - value_class(value));
  if (op.values == ScalarValues::kDecide)
    kind.push_back(std::bit_cast<int64_t>(value));
}

Kind kind_of(const Op& op, at::ArrayRef<c10::IValue> stack) {
  const Op::Schema& schema = op.schema();
  const KernelMode mode;  // the numbers of the host are read for the kernel
  Kind kind{int64_t(LaunchState::now())};
  for (const c10::IValue& value : stack) {
    if (value.isTensor() && value.toTensor().defined()) {
      kind.push_back(int64_t(value.toTensor().scalar_type()) << 8 |
                     value.toTensor().dim());
    } else if (value.isBool()) {
      kind.push_back(-2 - value.toBool());
    } else if (value.isInt()) {
      kind.push_back(value.toInt());
    } else if (value.isScalar()) {
      add_number(kind, op, value.toScalar());
    } else if (value.isString()) {
      kind.push_back(int64_t(std::hash<std::string>()(value.toStringRef())));
    } else {
      kind.push_back(value.isNone() ? -4 : -5);
    }
  }
  // Lists hold tensors of their own.
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t) {
    kind.push_back(int64_t(t.scalar_type()));
    if (op.meta != Meta::kSharesKernelsCode) kind.push_back(layout_kind(t));
    if (!is_npu(t) && t.dim() == 0) add_number(kind, op, t.item());
  });
  return kind;
}

at::Tensor zeros_like(const at::Tensor& t) {
  // One that the call writes must not be written by a trial.
  if (!is_npu(t)) return t.clone();
  at::Tensor z =
      at::detail::empty_strided_cpu(t.sizes(), t.strides(), t.scalar_type());
  if (z.storage().nbytes())
    memset(z.mutable_data_ptr(), 0, z.storage().nbytes());
  return z;
}

// A few zeros in place of a large tensor. What is equal stays so.
at::Tensor few_zeros_like(const at::Tensor& t) {
  constexpr int64_t kFew = 4;
  if (!is_npu(t)) return t.clone();
  std::vector<int64_t> sizes = t.sizes().vec();
  for (int64_t& size : sizes) size = std::min(size, kFew);
  at::Tensor z = at::detail::empty_cpu(sizes, t.scalar_type(), {}, {}, {}, {});
  if (z.nbytes()) memset(z.mutable_data_ptr(), 0, z.nbytes());
  return z;
}

// The results of the call on zeros.
torch::jit::Stack results_on_zeros(
    const Op::Schema& schema, at::ArrayRef<c10::IValue> stack,
    at::Tensor (*zeros_of)(const at::Tensor&) = zeros_like) {
  const KernelMode mode;
  torch::jit::Stack zeros =
      map_stack(schema, stack,
                {zeros_of, c10::Device(c10::kCPU),
                 schema.has_generator ? c10::IValue(seeded_generator({0, 0}))
                                      : c10::IValue()});
  schema.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU),
                                &zeros);
  return zeros;
}

// Runs the call on zeros; corrects `inferred`. On a few zeros it only finds out
// whether the kernel takes such arguments.
Verdict run_on_zeros(const Op& op, at::ArrayRef<c10::IValue> stack,
                     Inferred& inferred, bool few) {
  torch::jit::Stack zeros;
  try {
    zeros =
        results_on_zeros(op.schema(), stack, few ? few_zeros_like : zeros_like);
  } catch (const c10::NotImplementedError&) {
    return Verdict::kRefuses;
  } catch (const std::exception& e) {
    if (is_interrupt(e)) throw;
    // Either the call is wrong, or zeros are (a singular matrix).
    const std::string_view text = e.what();
    return text.find("not implemented for") == std::string_view::npos
               ? Verdict::kUnknown
               : Verdict::kRefuses;
  }
  if (op.meta == Meta::kSharesKernelsCode) return Verdict::kAgrees;
  std::optional<Inferred> actual = from_results(op, zeros);
  if (!actual || *actual == inferred) return Verdict::kAgrees;
  inferred = std::move(*actual);
  return Verdict::kDiffers;
}

}  // namespace

Verdict try_on_zeros(const Op& op, at::ArrayRef<c10::IValue> stack,
                     Inferred& inferred) {
  const Op::Schema& schema = op.schema();
  if (schema.is_random && !schema.has_generator) return Verdict::kAgrees;
  // A kernel of somebody else's may do more than compute: it runs when called.
  if (is_third_party(op)) return Verdict::kAgrees;
  int64_t elements = 0;
  for_each_tensor(schema, stack,
                  [&](const at::Tensor& t, size_t) { elements += t.numel(); });
  const auto key = std::make_pair(&op, kind_of(op, stack));
  {
    std::lock_guard lock(known().mutex);
    const auto at = known().verdicts.find(key);
    // Where the two differ every shape must be tried anew.
    if (at != known().verdicts.end() && at->second != Verdict::kDiffers)
      return at->second;
    if (at != known().verdicts.end() && elements > kMaxElements)
      return Verdict::kDiffers;
  }
  const bool few = elements > kMaxElements;
  if (few && op.meta != Meta::kSharesKernelsCode) return Verdict::kUnknown;
  const Verdict verdict = run_on_zeros(op, stack, inferred, few);
  if (verdict == Verdict::kUnknown) return verdict;
  known().set(key, verdict);
  return verdict == Verdict::kDiffers ? Verdict::kAgrees : verdict;
}

std::optional<Inferred> infer_by_trial(const Op& op,
                                       at::ArrayRef<c10::IValue> stack) {
  try {
    return from_results(op, results_on_zeros(op.schema(), stack));
  } catch (const std::exception& e) {
    if (is_interrupt(e)) throw;
    return std::nullopt;
  }
}

void learn(const Op& op, at::ArrayRef<c10::IValue> stack, bool agrees) {
  known().set({&op, kind_of(op, stack)},
              agrees ? Verdict::kAgrees : Verdict::kDiffers);
}

}  // namespace npu
