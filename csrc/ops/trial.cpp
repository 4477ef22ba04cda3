#include "csrc/ops/trial.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "csrc/ops/judgement.h"
#include "csrc/ops/kernel_mode.h"
#include "csrc/ops/launch_state.h"
#include "csrc/ops/stack_map.h"
#include "csrc/ops/stand_ins.h"
#include "csrc/ops/stride_order.h"
#include "csrc/ops/third_party.h"
#include "csrc/ops/value_class.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

constexpr int64_t kMaxElements = 1 << 16;

// An operator and a kind of call for which a verdict is known.
struct Tried {
  const Op* op;
  std::vector<int64_t> kind;
};
struct Asked {
  const Op* op;
  c10::ArrayRef<int64_t> kind;
};

struct HashOfKind {
  using is_transparent = void;
  template <typename T>
  size_t operator()(const T& call) const {
    uint64_t hash = reinterpret_cast<uintptr_t>(call.op);
    for (const int64_t word : call.kind)
      hash = (hash ^ uint64_t(word)) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32;
    return hash;
  }
};

struct SameKind {
  using is_transparent = void;
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    return a.op == b.op && std::equal(a.kind.begin(), a.kind.end(),
                                      b.kind.begin(), b.kind.end());
  }
};

struct Known {
  std::mutex mutex;
  std::unordered_map<Tried, Judgement, HashOfKind, SameKind> judgements;

  void set(const Op& op, const CallKind& kind, Judgement judgement) {
    // Where a program makes ever new kinds of calls, because numbers decide,
    // some are forgotten and tried twice.
    constexpr size_t kMost = 8192;
    std::lock_guard lock(mutex);
    if (judgements.size() >= kMost) judgements.erase(judgements.begin());
    judgements.insert_or_assign({&op, {kind.begin(), kind.end()}},
                                std::move(judgement));
  }
};
Known& known() {
  static Known* const instance = new Known;
  return *instance;
}

// Adds everything about the layout of a tensor that may decide the order of a
// result's dimensions in memory.
void add_layout(CallKind& kind, const at::Tensor& t) {
  // The usual layout, for which the order need not be computed.
  constexpr int64_t kUsual = -6;
  if (has_default_strides(*t.unsafeGetTensorImpl())) {
    int64_t of_one = 0;  // its dimensions of one element
    for (int64_t dim = 0; dim < t.dim(); ++dim)
      of_one |= int64_t(t.size(dim) == 1) << (dim % 32);
    kind.push_back(kUsual);
    kind.push_back(of_one);
    return;
  }
  const StrideOrder order = stride_order(t.sizes(), t.strides());
  for (const int64_t dim : order)
    kind.push_back(dim | int64_t(t.size(dim) == 1) << 8 |
                   int64_t(t.stride(dim) == 0) << 9);
  // Many kernels view the tensor as one row of elements, or refuse it.
  const bool in_a_row = at::detail::computeStride(t.sizes(), t.strides(),
                                                  at::IntArrayRef(t.numel()))
                            .has_value();
  kind.push_back(int64_t(t.is_non_overlapping_and_dense()) |
                 int64_t(t.is_contiguous()) << 1 | int64_t(in_a_row) << 2);
}

void add_number(CallKind& kind, const Op& op, const at::Scalar& s) {
  const double value = s.isComplex() ? 0 : s.toDouble();
  kind.push_back(-1000 - int64_t(s.type()) * 256 - value_class(value));
  if (op.values == ScalarValues::kDecide)
    kind.push_back(std::bit_cast<int64_t>(value));
}

// Whether the shapes of a call come from the same code as its kernel's. A cpu
// kernel first converts operands to the type that it computes in, which closes
// gaps in them, so such calls do not count.
bool shares_kernels_code(const Op& op, at::ArrayRef<c10::IValue> stack) {
  if (op.meta != Meta::kSharesKernelsCode && op.meta != Meta::kElementWise)
    return false;
  std::optional<at::ScalarType> type;
  bool converted = false, gaps = false;
  for_each_tensor(op.schema(), stack, [&](const at::Tensor& t, size_t) {
    if (!is_npu(t)) return;
    converted = converted || (type && *type != t.scalar_type()) ||
                c10::isIntegralType(t.scalar_type(), /*includeBool=*/true);
    gaps = gaps || !t.is_non_overlapping_and_dense();
    type = t.scalar_type();
  });
  return !(converted && gaps);
}

// The part of a number that may decide the order of a result's dimensions: the
// number may name a dimension.
int64_t as_dimension(int64_t n) {
  constexpr int64_t kDimensions = 8;
  return n >= -kDimensions && n < kDimensions ? n : kDimensions;
}

// Adds the same part of each number of a list, or its flags.
void add_list(CallKind& kind, const c10::IValue& list) {
  if (list.isIntList())
    for (const c10::IValue& n : list.toListRef())
      kind.push_back(as_dimension(n.toInt()));
  if (list.isBoolList())
    for (const bool flag : list.toBoolList()) kind.push_back(flag);
  kind.push_back(-5);
}

}  // namespace

CallKind kind_of(const Op& op, at::ArrayRef<c10::IValue> stack,
                 const Overlap& overlap) {
  const Op::Schema& schema = op.schema();
  const bool shared = shares_kernels_code(op, stack);
  CallKind kind{int64_t(LaunchState::now()), shared};
  for (size_t i = 0; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor() && value.toTensor().defined()) {
      kind.push_back(int64_t(value.toTensor().scalar_type()) << 8 |
                     value.toTensor().dim());
    } else if (value.isBool()) {
      kind.push_back(-2 - value.toBool());
    } else if (value.isInt()) {
      // A shape function written here knows which numbers are right. An integer
      // that is no ArgKind::kInt names a dtype or the like.
      kind.push_back(schema.shapes && schema.kinds[i] == ArgKind::kInt
                         ? as_dimension(value.toInt())
                         : value.toInt());
    } else if (value.isScalar()) {
      add_number(kind, op, value.toScalar());
    } else if (value.isString()) {
      kind.push_back(int64_t(std::hash<std::string>()(value.toStringRef())));
    } else if (value.isNone()) {
      kind.push_back(-4);
    } else {
      add_list(kind, value);
    }
  }
  // The tensors of lists count, too. Which empty tensors a kernel refuses
  // depends on the dimension that it works along.
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t) {
    int64_t empty = 0;  // its dimensions without elements
    if (t.numel() == 0)
      for (int64_t dim = 0; dim < t.dim(); ++dim)
        if (t.size(dim) == 0) empty |= int64_t(1) << (dim % 32);
    kind.push_back(int64_t(t.scalar_type()) | empty << 8);
    if (!shared) add_layout(kind, t);
    if (!is_npu(t) && t.dim() == 0) {
      const KernelMode mode;  // reads the number as the kernel does
      add_number(kind, op, t.item());
    }
  });
  kind.append(overlap.pairs.begin(), overlap.pairs.end());
  return kind;
}

namespace {

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
    return elements <= kMaxElements;
  }

  std::set<int64_t> large_;
  int64_t step_ = kKept;
  bool rewritten_ = false;
};

// The results of the call on zeros. With `smaller`, tensors at one address
// become one tensor, which is all of an overlap that is kept.
torch::jit::Stack results_on_zeros(const Op::Schema& schema,
                                   at::ArrayRef<c10::IValue> stack,
                                   const Overlap& overlap,
                                   Smaller* smaller = nullptr) {
  const KernelMode mode;
  StandIns related(StandIns::Memory::kZeros);
  std::map<std::pair<const void*, std::vector<int64_t>>, at::Tensor> same;
  const auto zeros_for = [&](const at::Tensor& t) {
    if (!is_npu(t)) return host_copy(t);
    if (!smaller)
      return overlap ? related.of(t)
                     : zeros_with(t.sizes(), t.strides(), t.scalar_type());
    if (!overlap) return smaller->zeros_like(t);
    at::Tensor& z = same[{t.const_data_ptr(), t.sizes().vec()}];
    if (!z.defined()) z = smaller->zeros_like(t);
    return z;
  };
  torch::jit::Stack zeros =
      map_stack(schema, stack,
                {zeros_for, c10::Device(c10::kCPU),
                 schema.has_generator ? c10::IValue(seeded_generator({0, 0}))
                                      : c10::IValue()});
  if (smaller) smaller->rewrite(schema, zeros);
  schema.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU),
                                &zeros);
  return zeros;
}

std::atomic<uint64_t> corrections_{0};

// Runs the call on zeros, or a `smaller` one, and corrects `inferred`.
Judgement run_on_zeros(const Op& op, at::ArrayRef<c10::IValue> stack,
                       const Overlap& overlap, Inferred& inferred,
                       Smaller* smaller = nullptr) {
  torch::jit::Stack zeros;
  try {
    zeros = results_on_zeros(op.schema(), stack, overlap, smaller);
  } catch (const c10::NotImplementedError&) {
    return {Verdict::kRefuses, {}};
  } catch (const std::exception& e) {
    if (is_interrupt(e)) throw;
    const std::string_view text = e.what();
    if (text.find("not implemented for") != std::string_view::npos)
      return {Verdict::kRefuses, {}};
    // Either the call is wrong, or zeros are (a singular matrix), or only the
    // smaller call is; the shape function has seen the large one.
    const bool only_smaller =
        smaller && smaller->rewritten() && op.schema().shapes;
    return {only_smaller ? Verdict::kAgrees : Verdict::kUnknown, {}};
  }
  if (shares_kernels_code(op, stack)) return {Verdict::kAgrees, {}};
  std::optional<Inferred> actual = from_results(op, zeros);
  if (!actual) return {Verdict::kAgrees, {}};
  if (smaller) {
    Judgement judgement = judge_smaller(inferred, *actual);
    if (judgement.verdict == Verdict::kAgrees && !judgement.orders.empty())
      lay_out(inferred, judgement.orders);
    return judgement;
  }
  Judgement judgement = judge(inferred, *actual);
  if (judgement.verdict == Verdict::kDiffers && op.schema().shapes)
    // Relaxed: a count.
    corrections_.fetch_add(1, std::memory_order_relaxed);
  inferred = std::move(*actual);
  return judgement;
}

}  // namespace

uint64_t shape_corrections() {
  // Relaxed: a count.
  return corrections_.load(std::memory_order_relaxed);
}

Verdict try_on_zeros(const Op& op, at::ArrayRef<c10::IValue> stack,
                     const Overlap& overlap, Inferred& inferred) {
  const Op::Schema& schema = op.schema();
  if (op.meta == Meta::kNone) return Verdict::kAgrees;
  if (schema.is_random && !schema.has_generator) return Verdict::kAgrees;
  // A third-party kernel may do more than compute, so it runs only when it is
  // called.
  if (is_third_party(op)) return Verdict::kAgrees;
  if (overlap.degree == Overlap::Degree::kUnusual) {
    const Verdict verdict = run_on_zeros(op, stack, overlap, inferred).verdict;
    return verdict == Verdict::kDiffers ? Verdict::kAgrees : verdict;
  }
  int64_t elements = 0;
  for_each_tensor(schema, stack,
                  [&](const at::Tensor& t, size_t) { elements += t.numel(); });
  const bool large = elements > kMaxElements;
  const CallKind kind = kind_of(op, stack, overlap);
  {
    std::lock_guard lock(known().mutex);
    const auto at = known().judgements.find(Asked{&op, kind});
    if (at != known().judgements.end()) {
      const Judgement& judgement = at->second;
      if (judgement.verdict == Verdict::kAgrees && !judgement.orders.empty())
        lay_out(inferred, judgement.orders);
      // Where kernel and inference differ, every shape has to be tried anew.
      if (judgement.verdict != Verdict::kDiffers || large)
        return judgement.verdict;
    }
  }
  std::optional<Smaller> smaller;
  if (large) smaller.emplace(schema, stack);
  Judgement judgement =
      run_on_zeros(op, stack, overlap, inferred, smaller ? &*smaller : nullptr);
  const Verdict verdict = judgement.verdict;
  if (verdict == Verdict::kUnknown || (large && verdict == Verdict::kDiffers))
    return Verdict::kUnknown;
  known().set(op, kind, std::move(judgement));
  return verdict == Verdict::kDiffers ? Verdict::kAgrees : verdict;
}

std::optional<Inferred> infer_by_trial(const Op& op,
                                       at::ArrayRef<c10::IValue> stack,
                                       const Overlap& overlap) {
  try {
    return from_results(op, results_on_zeros(op.schema(), stack, overlap));
  } catch (const std::exception& e) {
    if (is_interrupt(e)) throw;
    return std::nullopt;
  }
}

void learn(const Op& op, const CallKind& kind, const Inferred& inferred,
           const std::optional<Inferred>& actual) {
  known().set(
      op, kind,
      actual ? judge(inferred, *actual) : Judgement{Verdict::kDiffers, {}});
}

}  // namespace npu
