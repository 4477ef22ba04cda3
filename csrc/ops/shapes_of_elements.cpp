// Shape functions of operators that make, compute or transform elements, or
// rows of them, and are not structured. False: the function does not know, as
// in shapes_by_hand.cpp.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>

#include <algorithm>

#include "csrc/ops/range_length.h"
#include "csrc/ops/shape_arguments.h"
#include "csrc/ops/stack_map.h"
#include "csrc/ops/stride_order.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

using at::Tensor;

bool are_plain(Arguments inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [](const c10::IValue& v) {
    return v.isTensor() && v.toTensor().defined() && is_npu(v.toTensor());
  });
}

bool is_npu_or_number(const Tensor& t) {
  return t.defined() && (is_npu(t) || (t.dim() == 0 && t.device().is_cpu()));
}

// Adds the result of a kernel that walks the elements of these inputs together.
void add_elementwise(Shapes& results, Arguments inputs, at::ScalarType type) {
  at::TensorIteratorConfig config;
  config.add_owned_output(at::Tensor());
  for (const c10::IValue& input : inputs)
    config.add_owned_const_input(lend_meta(input.toTensor()));
  config.check_all_same_dtype(false).declare_static_dtype_and_device(
      type, c10::Device(c10::kMeta));
  results.add(config.build().output());
}

bool of_one_type(Arguments inputs) {
  return are_plain(inputs) &&
         std::all_of(inputs.begin(), inputs.end(), [&](const c10::IValue& v) {
           return v.toTensor().scalar_type() == tensor(inputs[0]).scalar_type();
         });
}

bool elementwise(Arguments inputs, Shapes& results) {
  if (!of_one_type(inputs)) return false;
  add_elementwise(results, inputs, tensor(inputs[0]).scalar_type());
  return true;
}

bool unary(Arguments a, Shapes& results) {
  return !tensor(a[0]).is_complex() && elementwise(a.slice(0, 1), results);
}
bool unary_real(Arguments a, Shapes& results) {
  return at::isFloatingType(tensor(a[0]).scalar_type()) && unary(a, results);
}
bool binary(Arguments a, Shapes& results) {
  return elementwise(a.slice(0, 2), results);
}

// grad, mask
bool dropout_backward(Arguments a, Shapes& results) {
  if (!are_plain(a.slice(0, 2)) || !tensor(a[0]).is_floating_point() ||
      tensor(a[1]).scalar_type() != at::kBool)
    return false;
  add_elementwise(results, a.slice(0, 2), tensor(a[0]).scalar_type());
  return true;
}

// Floating tensors of one size and type; the result is a new one of these.
template <size_t n>
bool alike(Arguments a, Shapes& results) {
  const Tensor& first = tensor(a[0]);
  if (!of_one_type(a.slice(0, n)) || !first.is_floating_point()) return false;
  for (const c10::IValue& each : a.slice(0, n))
    if (each.toTensor().sizes() != first.sizes()) return false;
  results.add_contiguous(first.sizes(), first.scalar_type());
  return true;
}

bool unary_bool(Arguments a, Shapes& results) {
  if (!are_plain(a.slice(0, 1))) return false;
  add_elementwise(results, a.slice(0, 1), at::kBool);
  return true;
}
bool binary_bool(Arguments a, Shapes& results) {
  if (!of_one_type(a.slice(0, 2))) return false;
  add_elementwise(results, a.slice(0, 2), at::kBool);
  return true;
}

bool in_place(Arguments a, Shapes&) { return are_plain(a.slice(0, 1)); }

// condition, self, other; one of the last two may be a number of the host
bool where(Arguments a, Shapes& results) {
  const Tensor &self = tensor(a[1]), &other = tensor(a[2]);
  if (!are_plain(a.slice(0, 1)) || !is_npu_or_number(self) ||
      !is_npu_or_number(other) || self.scalar_type() != other.scalar_type() ||
      tensor(a[0]).scalar_type() != at::kBool)
    return false;
  add_elementwise(results, a.slice(0, 3), self.scalar_type());
  return true;
}

// self, mask, value
bool masked_fill_new(Arguments a, Shapes& results) {
  if (!are_plain(a.slice(0, 2)) || tensor(a[1]).scalar_type() != at::kBool)
    return false;
  const Tensor &self = tensor(a[0]), &mask = tensor(a[1]);
  results.add_contiguous(at::infer_size(self.sizes(), mask.sizes()),
                         self.scalar_type());
  return true;
}

bool to_a_number(Arguments a, Shapes& results) {
  const Tensor& self = tensor(a[0]);
  if (self.numel() == 0) return false;
  results.add_contiguous({}, self.scalar_type());
  return true;
}

// self, dtype. Sums and products of integers are wide.
bool product(Arguments a, Shapes& results) {
  const at::ScalarType type = tensor(a[0]).scalar_type();
  results.add_contiguous({}, !a[1].isNone() ? a[1].toScalarType()
                             : at::isIntegralType(type, /*includeBool=*/true)
                                 ? at::kLong
                                 : type);
  return true;
}

// The sizes after a reduction over `dims`, over all dimensions where there are
// none.
bool reduced(const Tensor& self, const c10::IValue& dims, bool keep,
             std::vector<int64_t>& sizes) {
  std::vector<bool> gone(size_t(self.dim()), true);
  if (!dims.isNone() && !dims.toIntVector().empty()) {
    gone.assign(gone.size(), false);
    for (int64_t dim : dims.toIntVector()) {
      if (dim < 0) dim += self.dim();
      if (dim < 0 || dim >= self.dim() || gone[size_t(dim)]) return false;
      gone[size_t(dim)] = true;
    }
  }
  for (size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i]) {
      sizes.push_back(self.size(int64_t(i)));
    } else if (keep) {
      sizes.push_back(1);
    }
  }
  return true;
}

// self, dim, and at `kKeep` keepdim
template <int n_results, size_t kKeep>
bool of_rows(Arguments a, Shapes& results) {
  const Tensor& self = tensor(a[0]);
  std::vector<int64_t> sizes;
  if (!at::isFloatingType(self.scalar_type()) || self.numel() == 0 ||
      !reduced(self, a[1], a[kKeep].toBool(), sizes))
    return false;
  for (int i = 0; i < n_results; ++i)
    results.add_contiguous(sizes, self.scalar_type());
  return true;
}

// self, output_size
bool adaptive_avg_pool(Arguments a, Shapes& results) {
  const Tensor& self = tensor(a[0]);
  const std::vector<int64_t> output = a[1].toIntVector();
  if (self.numel() == 0 || output.size() > size_t(self.dim())) return false;
  std::vector<int64_t> sizes = self.sizes().vec();
  std::copy(output.begin(), output.end(),
            sizes.end() - ptrdiff_t(output.size()));
  results.add(sizes, self.suggest_memory_format(), self.scalar_type());
  return true;
}
// grad, self
bool adaptive_avg_pool_backward(Arguments a, Shapes& results) {
  const Tensor &grad = tensor(a[0]), &self = tensor(a[1]);
  if (grad.dim() != self.dim() || self.numel() == 0) return false;
  results.add(self.sizes(), self.suggest_memory_format(), self.scalar_type());
  return true;
}

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

// self, values, indices, dim: returns nothing, and writes two tensors like
// self.
bool running_extreme(Arguments a, Shapes&) {
  const Tensor& self = tensor(a[0]);
  return dim_of(a[3], self.dim()) && tensor(a[1]).sizes() == self.sizes() &&
         tensor(a[2]).sizes() == self.sizes();
}

// self, dim
bool log_of_running_sum(Arguments a, Shapes& results) {
  if (!dim_of(a[1], tensor(a[0]).dim())) return false;
  results.add_contiguous(tensor(a[0]).sizes(), tensor(a[0]).scalar_type());
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
      !dim_of(dims[0], self.dim()))
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
  const at::DimVector laid_out = dense_strides(sizes, order);
  return {laid_out.begin(), laid_out.end()};
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

constexpr NamedShapes kOfElements[] = {
    {"aten::_adaptive_avg_pool2d", adaptive_avg_pool},
    {"aten::_adaptive_avg_pool2d_backward", adaptive_avg_pool_backward},
    {"aten::_cummax_helper", running_extreme},
    {"aten::_cummin_helper", running_extreme},
    {"aten::_dirichlet_grad", alike<3>},
    {"aten::_fft_c2c", fft_of_complex},
    {"aten::_fft_c2r", fft_to_real},
    {"aten::_fft_r2c", fft_of_real},
    {"aten::_logcumsumexp", log_of_running_sum},
    {"aten::_prelu_kernel", binary},
    {"aten::_safe_softmax", safe_softmax},
    {"aten::_sample_dirichlet", alike<1>},
    {"aten::_standard_gamma_grad", alike<2>},
    {"aten::abs", unary},
    {"aten::abs_", in_place},
    {"aten::arange.start_out", arange},
    {"aten::binomial", alike<2>},
    {"aten::floor_divide", binary},
    {"aten::hardswish", unary},
    {"aten::hardswish_", in_place},
    {"aten::hardswish_backward", binary},
    {"aten::hardtanh", unary_real},
    {"aten::hardtanh_", in_place},
    {"aten::hardtanh_backward", binary},
    {"aten::isnan", unary_bool},
    {"aten::logical_and", binary_bool},
    {"aten::logical_not", unary_bool},
    {"aten::logical_or", binary_bool},
    {"aten::logical_xor", binary_bool},
    {"aten::logit", unary_real},
    {"aten::logsumexp", of_rows<1, 2>},
    {"aten::masked_fill.Scalar", masked_fill_new},
    {"aten::masked_fill.Tensor", masked_fill_new},
    {"aten::max", to_a_number},
    {"aten::min", to_a_number},
    {"aten::nan_to_num", unary_real},
    {"aten::native_dropout_backward", dropout_backward},
    {"aten::prod", product},
    {"aten::randperm.generator_out", permutation},
    {"aten::relu", unary},
    {"aten::relu_", in_place},
    {"aten::repeat_interleave.Tensor", repeat_interleave},
    {"aten::roll", roll},
    {"aten::rsub.Scalar", unary_real},
    {"aten::rsub.Tensor", binary},
    {"aten::std.correction", of_rows<1, 3>},
    {"aten::std_mean.correction", of_rows<2, 3>},
    {"aten::var.correction", of_rows<1, 3>},
    {"aten::var_mean.correction", of_rows<2, 3>},
    {"aten::where.self", where},
    {"aten::where.self_out", where},
};

}  // namespace

ShapeFunction shape_function_of_elements(std::string_view name) {
  return find_named(kOfElements, name);
}

}  // namespace npu
