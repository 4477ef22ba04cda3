#include "csrc/ops/trial.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "csrc/host/kernel_mode.h"
#include "csrc/ops/comparison.h"
#include "csrc/ops/stack_map.h"
#include "csrc/ops/stand_ins.h"
#include "csrc/ops/stride_order.h"
#include "csrc/ops/third_party.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

// Relaxed: a limit, on which nothing else depends.
std::atomic<int64_t> most_elements_{1 << 16};
int64_t most_elements() {
  return most_elements_.load(std::memory_order_relaxed);
}

// The verdicts of all threads.
struct Verdicts {
  std::mutex mutex;
  ByWords<Comparison> comparisons;
  size_t words = 0;  // of their identities

  void set(const Identity& identity, Comparison comparison) {
    // Where a program makes ever new kinds of calls, some are forgotten and
    // tried twice.
    constexpr size_t kMostWords = 1 << 18;
    const at::ArrayRef<uint64_t> key = identity.words();
    std::lock_guard lock(mutex);
    while (words > kMostWords) {
      words -= comparisons.begin()->first.size();
      comparisons.erase(comparisons.begin());
    }
    if (comparisons.insert_or_assign(key.vec(), std::move(comparison)).second)
      words += key.size();
  }
};
Verdicts& verdicts() {
  static Verdicts* const instance = new Verdicts;
  return *instance;
}

at::Tensor zeros_with(at::IntArrayRef sizes, at::IntArrayRef strides,
                      at::ScalarType type) {
  at::Tensor z = at::detail::empty_strided_cpu(sizes, strides, type);
  if (z.storage().nbytes())
    memset(z.mutable_data_ptr(), 0, z.storage().nbytes());
  return z;
}

// A smaller call of the same kind in the place of a large one. Sizes up to
// kKept stay as they are; of the others, the smallest becomes kKept and a step,
// the next kKept and two steps, and so on: what was equal, smaller or larger
// still is. The step is as large as it can be, since kernels may want halves or
// quarters; no size grows.
class Smaller {
 public:
  Smaller(const Op::Schema& schema, at::ArrayRef<c10::IValue> stack) {
    for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t) {
      for (const int64_t size : t.sizes())
        if (size > kKept) large_.insert(size);
    });
    while (step_ > 1 && !suits(schema, stack)) step_ /= 2;
  }

  at::Tensor zeros_like(const at::Tensor& t) const {
    at::DimVector sizes, room;
    const bool dense = t.is_non_overlapping_and_dense();
    for (int64_t dim = 0; dim < t.dim(); ++dim) {
      sizes.push_back(of(t.size(dim)));
      const bool expanded = t.stride(dim) == 0;
      room.push_back(expanded ? 1 : sizes.back() + !dense);
    }
    at::DimVector strides =
        dense_strides(room, stride_order(t.sizes(), t.strides()));
    for (int64_t dim = 0; dim < t.dim(); ++dim)
      if (t.stride(dim) == 0) strides[size_t(dim)] = 0;
    return zeros_with(sizes, strides, t.scalar_type());
  }

  // Puts the same numbers for sizes into the other arguments. A number that is
  // no tensor's size becomes kKept: kernels may not check it, and what is too
  // small does not make them leave their tensors.
  void rewrite(const Op::Schema& schema, torch::jit::Stack& stack) {
    const auto replace = [&](int64_t n) {
      rewritten_ = rewritten_ || n > kKept;
      return of(n);
    };
    for (size_t i = 0; i < stack.size(); ++i) {
      if (schema.kinds[i] == ArgKind::kInt && stack[i].isInt()) {
        stack[i] = replace(stack[i].toInt());
      } else if (stack[i].isIntList()) {
        std::vector<int64_t> list = stack[i].toIntVector();
        for (int64_t& n : list) n = replace(n);
        stack[i] = std::move(list);
      }
    }
  }

  // Whether rewrite() has changed a number. Others may depend on it, such as a
  // product of sizes, so the smaller call may be wrong where the large one is
  // right.
  bool rewritten() const { return rewritten_; }

 private:
  static constexpr int64_t kKept = 8;

  int64_t of(int64_t n) const {
    const auto at = large_.find(n);
    if (at == large_.end()) return std::min(n, kKept);
    return kKept + step_ * (1 + std::distance(large_.begin(), at));
  }

  bool suits(const Op::Schema& schema, at::ArrayRef<c10::IValue> stack) const {
    for (const int64_t size : large_)
      if (of(size) > size) return false;
    int64_t elements = 0;
    for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t) {
      int64_t own = 1;
      for (const int64_t size : t.sizes()) own *= of(size);
      elements += own;
    });
    return elements <= most_elements();
  }

  std::set<int64_t> large_;
  int64_t step_ = kKept;
  bool rewritten_ = false;
};

// What the tensors of a trial hold.
enum class Fill { kZeros, kOnes };

void fill_with_ones(const at::Tensor& t) {
  const int64_t n = int64_t(t.storage().nbytes() / t.element_size());
  at::from_blob(t.storage().mutable_data(), n, t.options()).fill_(1);
}

// Lets numbers of which the sum has to be a size have that sum.
void make_sums(const std::string& op, torch::jit::Stack& stack) {
  const auto set = [](const at::Tensor& numbers, int64_t sum) {
    if (numbers.dim() && numbers.numel())
      numbers.zero_().select(-1, 0).fill_(sum);
  };
  // repeats, output_size
  if (op == "aten::repeat_interleave.Tensor" && !stack[1].isNone())
    set(stack[0].toTensor(), stack[1].toInt());
  // data, reduce, lengths, indices, offsets, axis
  if (op == "aten::segment_reduce" && !stack[2].isNone())
    set(stack[2].toTensor(), stack[0].toTensor().size(stack[5].toInt()));
}

// The results of the call on such values. With `smaller`, tensors at one
// address become one tensor, which is all of an overlap that is kept.
torch::jit::Stack results_on(Fill fill, const Op::Schema& schema,
                             at::ArrayRef<c10::IValue> stack, Overlap overlap,
                             Smaller* smaller = nullptr) {
  const KernelMode mode;
  StandIns related(StandIns::Memory::kZeros);
  std::map<std::pair<const void*, std::vector<int64_t>>, at::Tensor> same;
  const auto zeros_for = [&](const at::Tensor& t) {
    if (!smaller)
      return overlap != Overlap::kNone
                 ? related.of(t)
                 : zeros_with(t.sizes(), t.strides(), t.scalar_type());
    if (overlap == Overlap::kNone) return smaller->zeros_like(t);
    at::Tensor& z = same[{t.const_data_ptr(), t.sizes().vec()}];
    if (!z.defined()) z = smaller->zeros_like(t);
    return z;
  };
  const auto stand_in_for = [&](const at::Tensor& t) {
    if (!is_npu(t)) return host_copy(t);
    const at::Tensor z = zeros_for(t);
    if (fill == Fill::kOnes) fill_with_ones(z);
    return z;
  };
  torch::jit::Stack tried =
      map_stack(schema, stack,
                {stand_in_for, c10::Device(c10::kCPU),
                 schema.has_generator ? c10::IValue(seeded_generator({0, 0}))
                                      : c10::IValue()});
  if (smaller) smaller->rewrite(schema, tried);
  make_sums(schema.full_name, tried);
  schema.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU),
                                &tried);
  return tried;
}

// A third-party kernel may do more than compute, so it runs only when it is
// called; and some kernels draw numbers that a program would miss.
bool may_be_tried(const Op& op) {
  const Op::Schema& schema = op.schema();
  return !is_third_party(op) && (!schema.is_random || schema.has_generator);
}

std::atomic<uint64_t> corrections_{0};

// The call with out= arguments of the shape that they get, so that no kernel
// warns that it resizes one, as inference has done that.
torch::jit::Stack resized(at::ArrayRef<c10::IValue> stack,
                          const Inferred& inferred) {
  torch::jit::Stack call = stack.vec();
  for (const Written& w : inferred.written) {
    c10::IValue& argument = call[size_t(w.argument)];
    const at::Tensor& t = argument.toTensor();
    if (t.sizes() != at::IntArrayRef(w.sizes))
      argument = zeros_with(w.sizes, w.strides, t.scalar_type());
  }
  return call;
}

// Runs the call on such values, or a `smaller` one, and corrects `inferred`.
Comparison run_on(Fill fill, const Op& op, at::ArrayRef<c10::IValue> stack,
                  const Identity& identity, Overlap overlap, Inferred& inferred,
                  Smaller* smaller = nullptr) {
  torch::jit::Stack results;
  try {
    results =
        smaller || overlap != Overlap::kNone
            ? results_on(fill, op.schema(), stack, overlap, smaller)
            : results_on(fill, op.schema(), resized(stack, inferred), overlap);
  } catch (const c10::NotImplementedError&) {
    return {Verdict::kRefuses, {}};
  } catch (const std::exception& e) {
    if (is_interrupt(e)) throw;
    const std::string_view text = e.what();
    if (text.find("not implemented for") != std::string_view::npos)
      return {Verdict::kRefuses, {}};
    // Either the call is wrong, or the values are (a singular matrix), or only
    // the smaller call is; the shape function has seen the large one.
    const bool only_smaller =
        smaller && smaller->rewritten() && op.schema().shapes;
    return {only_smaller ? Verdict::kAgrees : Verdict::kUnknown, {}};
  }
  if (identity.shares_kernels_code()) return {Verdict::kAgrees, {}};
  std::optional<Inferred> actual = from_results(op, results);
  if (!actual) return {Verdict::kAgrees, {}};
  if (smaller) {
    Comparison comparison = compare(inferred, *actual, /*smaller=*/true);
    if (comparison.verdict == Verdict::kAgrees && !comparison.orders.empty())
      lay_out(inferred, comparison.orders);
    return comparison;
  }
  Comparison comparison = compare(inferred, *actual);
  if (comparison.verdict == Verdict::kDiffers && op.schema().shapes)
    // Relaxed: a count.
    corrections_.fetch_add(1, std::memory_order_relaxed);
  inferred = std::move(*actual);
  return comparison;
}

}  // namespace

int64_t set_trial_limit(int64_t elements) {
  return most_elements_.exchange(elements, std::memory_order_relaxed);
}

uint64_t shape_corrections() {
  // Relaxed: a count.
  return corrections_.load(std::memory_order_relaxed);
}

Verdict try_kernel(const Op& op, at::ArrayRef<c10::IValue> stack,
                   const Identity& identity, Overlap overlap,
                   Inferred& inferred) {
  const Op::Schema& schema = op.schema();
  if (op.meta == Meta::kNone || !may_be_tried(op)) return Verdict::kAgrees;
  if (overlap == Overlap::kUnusual) {
    const Verdict verdict =
        run_on(Fill::kZeros, op, stack, identity, overlap, inferred).verdict;
    return verdict == Verdict::kDiffers ? Verdict::kAgrees : verdict;
  }
  int64_t elements = 0;
  for_each_tensor(schema, stack,
                  [&](const at::Tensor& t, size_t) { elements += t.numel(); });
  for (const Written& w : inferred.written)
    elements = std::max(elements, c10::multiply_integers(w.sizes));
  for (const OutSpec& out : inferred.outs)
    elements = std::max(elements, c10::multiply_integers(out.sizes));
  const bool large = elements > most_elements();
  {
    std::lock_guard lock(verdicts().mutex);
    const auto at = verdicts().comparisons.find(identity.words());
    if (at != verdicts().comparisons.end()) {
      const Comparison& comparison = at->second;
      if (comparison.verdict == Verdict::kAgrees && !comparison.orders.empty())
        lay_out(inferred, comparison.orders);
      // Where kernel and inference differ, every shape has to be tried anew.
      if (comparison.verdict != Verdict::kDiffers || large)
        return comparison.verdict;
    }
  }
  std::optional<Smaller> smaller;
  if (large) smaller.emplace(schema, stack);
  const auto run = [&](Fill fill) {
    return run_on(fill, op, stack, identity, overlap, inferred,
                  smaller ? &*smaller : nullptr);
  };
  Comparison comparison = run(Fill::kZeros);
  // Weights and lengths may not all be 0.
  if (comparison.verdict == Verdict::kUnknown) comparison = run(Fill::kOnes);
  const Verdict verdict = comparison.verdict;
  if (verdict == Verdict::kUnknown || (large && verdict == Verdict::kDiffers))
    return Verdict::kUnknown;
  verdicts().set(identity, std::move(comparison));
  return verdict == Verdict::kDiffers ? Verdict::kAgrees : verdict;
}

std::optional<Inferred> infer_by_trial(const Op& op,
                                       at::ArrayRef<c10::IValue> stack,
                                       Overlap overlap) {
  try {
    return from_results(op,
                        results_on(Fill::kZeros, op.schema(), stack, overlap));
  } catch (const std::exception& e) {
    if (is_interrupt(e)) throw;
    return std::nullopt;
  }
}

void raise_if_refused(const Op& op, at::ArrayRef<c10::IValue> stack,
                      Overlap overlap) {
  if (may_be_tried(op)) results_on(Fill::kZeros, op.schema(), stack, overlap);
}

void remember_verdict(const Identity& identity, const Inferred& inferred,
                      const std::optional<Inferred>& actual) {
  verdicts().set(identity, actual ? compare(inferred, *actual)
                                  : Comparison{Verdict::kDiffers, {}});
}

}  // namespace npu
