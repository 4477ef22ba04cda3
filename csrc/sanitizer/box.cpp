#include "csrc/sanitizer/box.h"

#include <algorithm>
#include <numeric>

#include "csrc/driver/view.h"

namespace npu {
namespace {

// Answers whether there is an x with low <= sum of coefficient * x[k] <= high,
// where x[k] is between least and most. Two boxes meet when the difference of
// their starts is such a sum. Equal strides of both boxes make one variable.
struct Sum {
  static constexpr int kMost = 2 * Box::kDims;
  static constexpr int kSteps = 20'000;

  struct Term {
    int64_t coefficient;  // > 0
    int64_t least, most;
  };
  Term terms[kMost];
  int count = 0;
  // For the terms from k on: the least and the largest sum, and the greatest
  // common divisor.
  int64_t least[kMost + 1], most[kMost + 1], divisor[kMost + 1];
  int steps = 0;

  void add(const Box& box, int sign) {
    for (int i = 0; i < box.ndim; ++i) {
      const int64_t stride = int64_t(box.dims[i].stride);
      const int64_t last = int64_t(box.dims[i].size) - 1;
      Term* term = std::find_if(terms, terms + count, [&](const Term& t) {
        return t.coefficient == stride;
      });
      if (term == terms + count) terms[count++] = {stride, 0, 0};
      (sign > 0 ? term->most : term->least) += sign * last;
    }
  }

  void prepare() {
    std::sort(terms, terms + count, [](const Term& a, const Term& b) {
      return a.coefficient > b.coefficient;
    });
    least[count] = most[count] = divisor[count] = 0;
    for (int k = count; k-- > 0;) {
      const Term& t = terms[k];
      least[k] = least[k + 1] + t.coefficient * t.least;
      most[k] = most[k + 1] + t.coefficient * t.most;
      divisor[k] = std::gcd(divisor[k + 1], t.coefficient);
    }
  }

  // Needs b > 0, which holds for all coefficients.
  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

  // The sum is sought in the part of [low, high] that is within [least[k],
  // most[k]].
  bool reaches(int k, int64_t low, int64_t high) {
    low = std::max(low, least[k]);
    high = std::min(high, most[k]);
    if (k == count) return low <= 0 && 0 <= high;
    if (floor_div(high, divisor[k]) * divisor[k] < low) return false;
    if (++steps > kSteps) return false;
    const Term& t = terms[k];
    // Only these x leave a rest that the later terms can reach.
    const int64_t from =
        std::max(t.least, -floor_div(most[k + 1] - low, t.coefficient));
    const int64_t to =
        std::min(t.most, floor_div(high - least[k + 1], t.coefficient));
    for (int64_t x = from; x <= to; ++x)
      if (reaches(k + 1, low - x * t.coefficient, high - x * t.coefficient))
        return true;
    return false;
  }
};

// How many elements a contiguous view has, or kStrided.
constexpr int64_t kStrided = -1;
int64_t contiguous_elements(const npu_view& view) {
  int64_t elements = 1;
  for (int i = view.ndim; i-- > 0;) {
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
  for (int i = 0; i < view.ndim; ++i)
    if (view.sizes[i] == 0) return box;
  // The innermost dimension comes first. One whose stride is the length of the
  // run so far extends the run.
  uint64_t reach = box.item;
  const auto add = [&](uint64_t stride, uint64_t size) {
    reach += stride * (size - 1);
    if (box.ndim == 0 && stride == box.item) {
      box.item *= size;
    } else if (box.ndim > 0 && stride == box.dims[box.ndim - 1].stride *
                                             box.dims[box.ndim - 1].size) {
      box.dims[box.ndim - 1].size *= size;
    } else if (box.ndim < Box::kDims) {
      box.dims[box.ndim++] = {stride, size};
    } else {
      box.vague = true;
    }
  };
  bool sorted = true;
  int64_t last = 0;
  for (int i = view.ndim; i-- > 0;) {
    if (view.sizes[i] == 1 || view.strides[i] == 0) continue;
    sorted &= view.strides[i] >= last;
    last = view.strides[i];
  }
  if (sorted) [[likely]] {
    for (int i = view.ndim; i-- > 0;)
      if (view.sizes[i] > 1 && view.strides[i] != 0)
        add(uint64_t(view.strides[i]) * view.itemsize, uint64_t(view.sizes[i]));
  } else {
    int order[64];
    int n = 0;
    for (int i = 0; i < view.ndim && n < 64; ++i)
      if (view.sizes[i] > 1 && view.strides[i] != 0) order[n++] = i;
    std::sort(order, order + n, [&](int a, int b) {
      const int64_t one = view.strides[a], other = view.strides[b];
      return one != other ? one < other : a > b;
    });
    for (int i = 0; i < n; ++i)
      add(uint64_t(view.strides[order[i]]) * view.itemsize,
          uint64_t(view.sizes[order[i]]));
  }
  std::reverse(box.dims, box.dims + box.ndim);
  box.hi = box.lo + reach;
  return box;
}

bool overlap(const Box& a, const Box& b) {
  if (a.lo >= b.hi || b.lo >= a.hi) return false;
  if (a.empty() || b.empty() || a.vague || b.vague) return false;
  if (a.solid() && b.solid()) return true;
  Sum sum;
  sum.add(a, 1);
  sum.add(b, -1);
  sum.prepare();
  // The runs [a', a' + a.item) and [b', b' + b.item) meet when a' - b' is more
  // than -a.item and less than b.item.
  const int64_t apart = int64_t(b.lo - a.lo);
  return sum.reaches(0, apart - int64_t(a.item) + 1,
                     apart + int64_t(b.item) - 1);
}

bool covers(const Box& outer, const Box& inner) {
  if (outer.lo > inner.lo || outer.hi < inner.hi) return false;
  if (outer.solid()) return true;
  if (outer.vague || inner.vague || outer.lo != inner.lo ||
      outer.item != inner.item || outer.ndim != inner.ndim)
    return false;
  return std::equal(outer.dims, outer.dims + outer.ndim, inner.dims,
                    [](const Box::Dim& a, const Box::Dim& b) {
                      return a.stride == b.stride && a.size == b.size;
                    });
}

}  // namespace npu
