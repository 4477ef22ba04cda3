// Shape functions of operators that make, sort, count, search, move or
// transform the elements along a dimension. False: the function does not know,
// as in shapes_by_hand.cpp.
#include <ATen/ExpandUtils.h>

#include <algorithm>

#include "csrc/ops/named_shapes.h"
#include "csrc/ops/range_length.h"
#include "csrc/ops/shape_arguments.h"
#include "csrc/ops/stack_map.h"

namespace npu {
namespace {

using at::Tensor;

// The result is like the first argument, if that has a new tensor's strides.
bool like_plain(Arguments a, Shapes& results) {
  if (!is_plain(tensor(a[0]))) return false;
  results.add_contiguous(tensor(a[0]).sizes(), tensor(a[0]).scalar_type());
  return true;
}

// self, dim, dtype
bool safe_softmax(Arguments a, Shapes& results) {
  return a[2].isNone() && tensor(a[0]).is_floating_point() &&
         like_plain(a, results);
}

bool empty_like(Arguments a, Shapes& results) {
  results.add_empty_like(tensor(a[0]));
  return true;
}

bool is_dimension(int64_t dim, const Tensor& t) {
  return dim >= -t.dim() && dim < t.dim();
}

// self, values, indices, dim: returns nothing, and writes two tensors like
// self.
bool running_extreme(Arguments a, Shapes&) {
  const Tensor& self = tensor(a[0]);
  return is_dimension(a[3].toInt(), self) &&
         tensor(a[1]).sizes() == self.sizes() &&
         tensor(a[2]).sizes() == self.sizes();
}

// self, dim
bool log_of_running_sum(Arguments a, Shapes& results) {
  if (!is_dimension(a[1].toInt(), tensor(a[0]))) return false;
  results.add_contiguous(tensor(a[0]).sizes(), tensor(a[0]).scalar_type());
  return true;
}

// Adds one element of each row along a dimension, and the index of that
// element.
bool add_chosen(const Tensor& self, int64_t dim, bool keep, Shapes& results) {
  if (!is_dimension(dim, self) || self.numel() == 0) return false;
  std::vector<int64_t> sizes = self.sizes().vec();
  const auto at = sizes.begin() + (dim < 0 ? dim + self.dim() : dim);
  if (keep) {
    *at = 1;
  } else {
    sizes.erase(at);
  }
  results.add_contiguous(sizes, self.scalar_type());
  results.add_contiguous(sizes, at::kLong);
  return true;
}
// self, dim, keepdim
bool chosen(Arguments a, Shapes& results) {
  return add_chosen(tensor(a[0]), a[1].toInt(), a[2].toBool(), results);
}

// self, dims
bool count_nonzero(Arguments a, Shapes& results) {
  const Tensor& self = tensor(a[0]);
  std::vector<int64_t> sizes = self.sizes().vec(), dims = a[1].toIntVector();
  for (int64_t& dim : dims) {
    if (!is_dimension(dim, self)) return false;
    if (dim < 0) dim += self.dim();
  }
  std::sort(dims.begin(), dims.end());
  if (std::adjacent_find(dims.begin(), dims.end()) != dims.end()) return false;
  if (dims.empty()) sizes.clear();
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim)
    sizes.erase(sizes.begin() + *dim);
  results.add_contiguous(sizes, at::kLong);
  return true;
}

bool add_places(const Tensor& values, bool small, Shapes& results) {
  results.add_contiguous(values.sizes(), small ? at::kInt : at::kLong);
  return true;
}
// self, boundaries, out_int32
bool bucketize(Arguments a, Shapes& results) {
  return tensor(a[1]).dim() == 1 &&
         add_places(tensor(a[0]), a[2].toBool(), results);
}
// sorted, self, out_int32, right, side, sorter. Each row of values is sought in
// its own sorted row, or all in the only one.
bool searchsorted(Arguments a, Shapes& results) {
  const Tensor &sorted = tensor(a[0]), &values = tensor(a[1]);
  if (sorted.dim() == 0 || sorted.numel() == 0 || !a[5].isNone()) return false;
  if (sorted.dim() != 1 &&
      (sorted.dim() != values.dim() ||
       sorted.sizes().slice(0, size_t(sorted.dim()) - 1) !=
           values.sizes().slice(0, size_t(sorted.dim()) - 1)))
    return false;
  return add_places(values, a[2].toBool(), results);
}

// x1, x2
bool cdist(Arguments a, Shapes& results) {
  const Tensor &x = tensor(a[0]), &y = tensor(a[1]);
  if (x.dim() < 2 || x.dim() != y.dim() || x.size(-1) != y.size(-1) ||
      x.scalar_type() != y.scalar_type() || !is_plain(x) || !is_plain(y) ||
      x.numel() == 0 || y.numel() == 0 ||
      x.sizes().slice(0, size_t(x.dim()) - 2) !=
          y.sizes().slice(0, size_t(x.dim()) - 2))
    return false;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = y.size(-2);
  results.add_contiguous(sizes, x.scalar_type());
  return true;
}

// start, end, step, out
bool arange(Arguments a, Shapes& results) {
  const at::ScalarType type = tensor(a[3]).scalar_type();
  const auto length =
      range_length(a[0].toScalar(), a[1].toScalar(), a[2].toScalar(), type);
  if (!length) return false;
  results.add_contiguous({*length}, type);
  return true;
}

// n
bool permutation(Arguments a, Shapes& results) {
  if (a[0].toInt() < 0) return false;
  results.add_contiguous({a[0].toInt()}, at::kLong);
  return true;
}

// self, num_samples
bool multinomial(Arguments a, Shapes& results) {
  const Tensor& self = tensor(a[0]);
  if (self.dim() < 1 || self.dim() > 2 || a[1].toInt() < 1) return false;
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes.back() = a[1].toInt();
  results.add_contiguous(sizes, at::kLong);
  return true;
}

// grad, x1, x2, p, cdist
bool cdist_backward(Arguments a, Shapes& results) {
  const Tensor &x = tensor(a[1]), &y = tensor(a[2]);
  if (!is_plain(x) || x.dim() != y.dim() || x.dim() < 2 || x.numel() == 0 ||
      y.numel() == 0 ||
      x.sizes().slice(0, size_t(x.dim()) - 2) !=
          y.sizes().slice(0, size_t(x.dim()) - 2))
    return false;
  results.add_contiguous(x.sizes(), x.scalar_type());
  return true;
}

using Dims = std::vector<int64_t>;

// Those of a transform; empty where the call may be wrong.
Dims transformed(const Tensor& self, const c10::IValue& list) {
  Dims dims = list.toIntVector();
  for (const int64_t dim : dims)
    if (dim < 0 || dim >= self.dim()) return {};
  if (self.numel() == 0 || self.is_conj()) return {};
  return dims;
}

// Sorts dimensions as they lie in memory, the outermost first.
void sort_by(const Dims& strides, Dims::iterator begin, Dims::iterator end) {
  std::stable_sort(begin, end, [&](int64_t a, int64_t b) {
    return strides[size_t(a)] > strides[size_t(b)];
  });
}

// How torch's kernel lays out what it transforms: the other dimensions first,
// as they lie in its argument, then those of the transform. `dims`: these, of
// which the first `sorted` may change their order.
Dims layout_of_transform(Dims strides, Dims dims, size_t sorted,
                         const Dims& sizes) {
  sort_by(strides, dims.begin(), dims.begin() + ptrdiff_t(sorted));
  Dims order;
  for (int64_t dim = 0; dim < int64_t(sizes.size()); ++dim)
    if (std::find(dims.begin(), dims.end(), dim) == dims.end())
      order.push_back(dim);
  sort_by(strides, order.begin(), order.end());
  order.insert(order.end(), dims.begin(), dims.end());
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[size_t(*dim)] = stride;
    stride *= sizes[size_t(*dim)];
  }
  return strides;
}

// self, dim, normalization, onesided
bool fft_of_real(Arguments a, Shapes& results) {
  const Tensor& self = tensor(a[0]);
  const Dims dims = transformed(self, a[1]);
  if (dims.empty() || !self.is_floating_point()) return false;
  Dims sizes = self.sizes().vec();
  int64_t& last = sizes[size_t(dims.back())];
  if (a[3].toBool()) last = last / 2 + 1;
  results.add(
      sizes,
      layout_of_transform(self.strides().vec(), dims, dims.size() - 1, sizes),
      at::toComplexType(self.scalar_type()));
  return true;
}
// self, dim, normalization, forward
bool fft_of_complex(Arguments a, Shapes& results) {
  const Tensor& self = tensor(a[0]);
  const Dims dims = transformed(self, a[1]), sizes = self.sizes().vec();
  if (dims.empty() || !self.is_complex()) return false;
  results.add(
      sizes,
      layout_of_transform(self.strides().vec(), dims, dims.size(), sizes),
      self.scalar_type());
  return true;
}
// self, dim, normalization, last_dim_size. The other dimensions have a complex
// transform before that of the last one.
bool fft_to_real(Arguments a, Shapes& results) {
  const Tensor& self = tensor(a[0]);
  Dims dims = transformed(self, a[1]);
  if (dims.empty() || !self.is_complex() || a[3].toInt() < 1) return false;
  const int64_t last = dims.back();
  dims.pop_back();
  Dims sizes = self.sizes().vec(), strides = self.strides().vec();
  if (!dims.empty())
    strides = layout_of_transform(strides, dims, dims.size(), sizes);
  sizes[size_t(last)] = a[3].toInt();
  results.add(sizes, layout_of_transform(std::move(strides), {last}, 0, sizes),
              at::toRealValueType(self.scalar_type()));
  return true;
}

// repeats, output_size
bool repeat_interleave(Arguments a, Shapes& results) {
  const Tensor& repeats = tensor(a[0]);
  if (a[1].isNone() || repeats.dim() != 1 || repeats.numel() == 0) return false;
  results.add_contiguous({a[1].toInt()}, repeats.scalar_type());
  return true;
}

// self, shifts, dims. Along one dimension the kernel joins two parts, one of
// which may be empty, so the result has the strides that torch.cat() gives it.
bool roll(Arguments a, Shapes& results) {
  const Tensor& self = tensor(a[0]);
  const std::vector<int64_t> shifts = a[1].toIntVector(),
                             dims = a[2].toIntVector();
  if (is_plain(self)) return like_plain(a, results);
  if (shifts.size() != 1 || dims.size() != 1 || self.numel() == 0 ||
      !is_dimension(dims[0], self))
    return false;
  const int64_t size = self.size(dims[0]);
  const int64_t start = ((size - shifts[0]) % size + size) % size;
  const Tensor whole = lend_meta(self);
  const at::MemoryFormat one = format_of(
                             whole.narrow(dims[0], start, size - start)),
                         other = format_of(whole.narrow(dims[0], 0, start));
  results.add(self.sizes(), one == other ? one : at::MemoryFormat::Contiguous,
              self.scalar_type());
  return true;
}

// self, b, upper, left, unitriangular. The result lies by columns.
bool solve_triangular(Arguments a, Shapes& results) {
  const Tensor &self = tensor(a[0]), &b = tensor(a[1]);
  if (self.dim() < 2 || b.dim() < 2 || self.size(-1) != self.size(-2) ||
      self.size(-1) != b.size(a[3].toBool() ? -2 : -1) ||
      self.scalar_type() != b.scalar_type() || b.numel() == 0)
    return false;
  const at::DimVector batch =
      at::infer_size_dimvector(self.sizes().slice(0, size_t(self.dim()) - 2),
                               b.sizes().slice(0, size_t(b.dim()) - 2));
  Dims sizes(batch.begin(), batch.end());
  sizes.insert(sizes.end(), {b.size(-1), b.size(-2)});
  Dims strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i])
    strides[i] = stride;
  std::swap(sizes.end()[-1], sizes.end()[-2]);
  std::swap(strides.end()[-1], strides.end()[-2]);
  results.add(sizes, strides, b.scalar_type());
  return true;
}

constexpr NamedShapes kOfRows[] = {
    {"aten::_cdist_backward", cdist_backward},
    {"aten::_cdist_forward", cdist},
    {"aten::_cummax_helper", running_extreme},
    {"aten::_cummin_helper", running_extreme},
    {"aten::_fft_c2c", fft_of_complex},
    {"aten::_fft_c2r", fft_to_real},
    {"aten::_fft_r2c", fft_of_real},
    {"aten::_logcumsumexp", log_of_running_sum},
    {"aten::_safe_softmax", safe_softmax},
    {"aten::arange.start_out", arange},
    {"aten::bucketize.Tensor", bucketize},
    {"aten::count_nonzero.dim_IntList", count_nonzero},
    {"aten::flip", empty_like},
    {"aten::median.dim", chosen},
    {"aten::median.dim_values", chosen},
    {"aten::linalg_solve_triangular", solve_triangular},
    {"aten::multinomial", multinomial},
    {"aten::randperm.generator_out", permutation},
    {"aten::repeat_interleave.Tensor", repeat_interleave},
    {"aten::roll", roll},
    {"aten::searchsorted.Tensor", searchsorted},
};

}  // namespace

ShapeFunction shape_function_of_rows(std::string_view name) {
  return find_named(kOfRows, name);
}

}  // namespace npu
