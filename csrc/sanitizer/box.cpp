#include "csrc/sanitizer/box.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>

#include "csrc/driver/driver.h"

namespace npu {
namespace {

// Answers whether there is an x with low <= sum of coefficient * x[k] <= low +
// width, where x[k] is between least and most. Two boxes meet when the
// difference of their starts is such a sum. Equal strides of both boxes make
// one variable.
class Sum {
 public:
  explicit Sum(int64_t width) : width_(width) {}

  void add(const Box& box, int sign) {
    terms_.reserve(terms_.size() + box.dims.size() + 1);
    for (const Box::Dim& dim : box.dims) {
      const int64_t last = int64_t(dim.size) - 1;
      auto term =
          std::ranges::find(terms_, int64_t(dim.stride), &Term::coefficient);
      if (term == terms_.end())
        term = terms_.insert(term, {.coefficient = int64_t(dim.stride)});
      (sign > 0 ? term->most : term->least) += sign * last;
    }
  }

  Answer is_from(int64_t low) {
    std::ranges::sort(terms_, std::greater{}, &Term::coefficient);
    terms_.push_back({.coefficient = 0});  // the end
    for (size_t k = terms_.size() - 1; k-- > 0;) {
      Term& t = terms_[k];
      const Term& next = terms_[k + 1];
      t.least_sum = next.least_sum + t.coefficient * t.least;
      t.most_sum = next.most_sum + t.coefficient * t.most;
      t.divisor = std::gcd(next.divisor, t.coefficient);
    }
    if (reaches(terms_.data(), low)) return Answer::kYes;
    return steps_ > kSteps ? Answer::kUnknown : Answer::kNo;
  }

 private:
  static constexpr int kSteps = 20'000;
  // Where strides divide each other no more than these are left to be reached
  // at a term: without them the steps would double with each term.
  static constexpr uint32_t kFailed = 4;

  struct Term {
    int64_t coefficient;  // > 0, but at the end
    int64_t least = 0, most = 0;
    // Of this term and those behind it: the least and the largest sum, and the
    // greatest common divisor.
    int64_t least_sum = 0, most_sum = 0, divisor = 0;
    // What was sought here in vain lately.
    int64_t failed[kFailed] = {};
    uint32_t failures = 0;

    bool has_failed(int64_t low) const {
      const uint32_t n = std::min(failures, kFailed);
      return std::find(failed, failed + n, low) != failed + n;
    }
  };

  // Needs b > 0, which holds for all coefficients.
  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

  // Whether the sum of this term and those behind it can be in [start, start +
  // width].
  bool reaches(Term* t, int64_t start) {
    const int64_t low = std::max(start, t->least_sum);
    const int64_t high = std::min(start + width_, t->most_sum);
    if (low > high) return false;
    if (!t->coefficient) return true;
    if (floor_div(high, t->divisor) * t->divisor < low) return false;
    if (t->has_failed(start) || ++steps_ > kSteps) return false;
    // Only these x leave a rest that the later terms can reach.
    const int64_t from =
        std::max(t->least, -floor_div(t[1].most_sum - low, t->coefficient));
    const int64_t to =
        std::min(t->most, floor_div(high - t[1].least_sum, t->coefficient));
    for (int64_t x = from; x <= to; ++x)
      if (reaches(t + 1, start - x * t->coefficient)) return true;
    t->failed[t->failures++ % kFailed] = start;
    return false;
  }

  const int64_t width_;
  std::vector<Term> terms_;
  int steps_ = 0;
};

// How many elements a contiguous view has, or kStrided.
constexpr int64_t kStrided = -1;
int64_t contiguous_elements(const npu_view& view) {
  int64_t elements = 1;
  for (uint32_t i = view.ndim; i-- > 0;) {
    if (view.sizes[i] == 1) continue;
    if (view.strides[i] != elements) return kStrided;
    elements *= view.sizes[i];
  }
  return elements;
}

}  // namespace

Box box_of(const npu_view& view, const uint64_t* words) {
  Box box;
  box.lo = box.hi = uintptr_t(words[view.word]);
  box.item = view.itemsize;
  if (is_range(view)) {
    box.item *= words[view.ndim];
    box.hi = box.lo + box.item;
    return box;
  }
  if (const int64_t elements = contiguous_elements(view); elements != kStrided)
      [[likely]] {
    box.item *= uint64_t(elements);
    box.hi = box.lo + box.item;
    return box;
  }
  constexpr size_t kFew = 8;
  Box::Dim few[kFew];
  std::vector<Box::Dim> many(view.ndim > kFew ? view.ndim : 0);
  Box::Dim* const dims = many.empty() ? few : many.data();
  size_t n = 0;
  for (uint32_t i = view.ndim; i-- > 0;) {
    if (view.sizes[i] == 0) return box;
    if (view.sizes[i] > 1 && view.strides[i] != 0)
      dims[n++] = {uint64_t(view.strides[i]) * view.itemsize,
                   uint64_t(view.sizes[i])};
  }
  std::sort(dims, dims + n, [](const Box::Dim& a, const Box::Dim& b) {
    return a.stride < b.stride;
  });
  // The innermost dimension comes first. One whose steps are multiples of those
  // of the dimension before it, and no longer than it, leaves no gap there.
  uint64_t reach = box.item;
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    const Box::Dim dim = dims[i];
    const uint64_t length = dim.stride * (dim.size - 1);
    reach += length;
    Box::Dim* const before = kept ? &dims[kept - 1] : nullptr;
    if (!before && dim.stride <= box.item)
      box.item += length;
    else if (before && dim.stride % before->stride == 0 &&
             dim.stride <= before->stride * before->size)
      before->size += length / before->stride;
    else
      dims[kept++] = dim;
  }
  box.dims.assign(std::reverse_iterator(dims + kept),
                  std::reverse_iterator(dims));
  box.hi = box.lo + reach;
  return box;
}

Answer overlap(const Box& a, const Box& b) {
  if (a.lo >= b.hi || b.lo >= a.hi || a.empty() || b.empty())
    return Answer::kNo;
  if (a.solid() && b.solid()) return Answer::kYes;
  // The runs [a', a' + a.item) and [b', b' + b.item) meet when a' - b' is more
  // than -a.item and less than b.item.
  Sum sum(int64_t(a.item + b.item) - 2);
  sum.add(a, 1);
  sum.add(b, -1);
  return sum.is_from(int64_t(b.lo - a.lo) - int64_t(a.item) + 1);
}

bool covers(const Box& outer, const Box& inner) {
  if (outer.lo > inner.lo || outer.hi < inner.hi) return false;
  if (outer.solid()) return true;
  return outer.lo == inner.lo && outer.item == inner.item &&
         std::ranges::equal(outer.dims, inner.dims);
}

}  // namespace npu
