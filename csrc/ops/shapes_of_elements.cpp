// Shape functions of operators that compute each element, or each row's sum, by
// itself and are not structured. False: the function does not know, as in
// shapes_by_hand.cpp.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>

#include <algorithm>

#include "csrc/ops/named_shapes.h"
#include "csrc/ops/shape_arguments.h"
#include "csrc/ops/stack_map.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

bool are_plain(Arguments inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [](const c10::IValue& v) {
    return v.isTensor() && v.toTensor().defined() && is_npu(v.toTensor());
  });
}

bool is_npu_or_number(const at::Tensor& t) {
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
           return v.toTensor().scalar_type() ==
                  inputs[0].toTensor().scalar_type();
         });
}

bool elementwise(Arguments inputs, Shapes& results) {
  if (!of_one_type(inputs)) return false;
  add_elementwise(results, inputs, inputs[0].toTensor().scalar_type());
  return true;
}

bool unary(Arguments a, Shapes& results) {
  return !a[0].toTensor().is_complex() && elementwise(a.slice(0, 1), results);
}
bool unary_real(Arguments a, Shapes& results) {
  return at::isFloatingType(a[0].toTensor().scalar_type()) && unary(a, results);
}
bool binary(Arguments a, Shapes& results) {
  return elementwise(a.slice(0, 2), results);
}

// grad, mask
bool dropout_backward(Arguments a, Shapes& results) {
  if (!are_plain(a.slice(0, 2)) || !a[0].toTensor().is_floating_point() ||
      a[1].toTensor().scalar_type() != at::kBool)
    return false;
  add_elementwise(results, a.slice(0, 2), a[0].toTensor().scalar_type());
  return true;
}

// Floating tensors of one size and type; the result is a new one of these.
template <size_t n>
bool alike(Arguments a, Shapes& results) {
  const at::Tensor& first = a[0].toTensor();
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
  const at::Tensor &self = a[1].toTensor(), &other = a[2].toTensor();
  if (!are_plain(a.slice(0, 1)) || !is_npu_or_number(self) ||
      !is_npu_or_number(other) || self.scalar_type() != other.scalar_type() ||
      a[0].toTensor().scalar_type() != at::kBool)
    return false;
  add_elementwise(results, a.slice(0, 3), self.scalar_type());
  return true;
}

// self, mask, value
bool masked_fill_new(Arguments a, Shapes& results) {
  if (!are_plain(a.slice(0, 2)) || a[1].toTensor().scalar_type() != at::kBool)
    return false;
  const at::Tensor &self = a[0].toTensor(), &mask = a[1].toTensor();
  results.add_contiguous(at::infer_size(self.sizes(), mask.sizes()),
                         self.scalar_type());
  return true;
}

bool to_a_number(Arguments a, Shapes& results) {
  const at::Tensor& self = a[0].toTensor();
  if (self.numel() == 0) return false;
  results.add_contiguous({}, self.scalar_type());
  return true;
}

// self, dtype. Sums and products of integers are wide.
bool product(Arguments a, Shapes& results) {
  const at::ScalarType type = a[0].toTensor().scalar_type();
  results.add_contiguous({}, !a[1].isNone() ? a[1].toScalarType()
                             : at::isIntegralType(type, /*includeBool=*/true)
                                 ? at::kLong
                                 : type);
  return true;
}

// self, other
bool dot(Arguments a, Shapes& results) {
  const at::Tensor& self = a[0].toTensor();
  if (!of_one_type(a.slice(0, 2)) || self.dim() != 1 ||
      self.sizes() != a[1].toTensor().sizes())
    return false;
  results.add_contiguous({}, self.scalar_type());
  return true;
}

// The sizes after a reduction over `dims`, over all dimensions where there are
// none.
bool reduced(const at::Tensor& self, const c10::IValue& dims, bool keep,
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

template <int n_results>
bool variance(Arguments a, Shapes& results) {  // self, dim, correction, keepdim
  const at::Tensor& self = a[0].toTensor();
  std::vector<int64_t> sizes;
  if (!at::isFloatingType(self.scalar_type()) || self.numel() == 0 ||
      !reduced(self, a[1], a[3].toBool(), sizes))
    return false;
  for (int i = 0; i < n_results; ++i)
    results.add_contiguous(sizes, self.scalar_type());
  return true;
}

// self, dim, keepdim
bool logsumexp(Arguments a, Shapes& results) {
  const at::Tensor& self = a[0].toTensor();
  std::vector<int64_t> sizes;
  if (!at::isFloatingType(self.scalar_type()) ||
      !reduced(self, a[1], a[2].toBool(), sizes))
    return false;
  results.add_contiguous(sizes, self.scalar_type());
  return true;
}

// A loss of two tensors of one size; `reduction` 0 leaves its elements.
bool add_loss(Arguments inputs, int64_t reduction, Shapes& results) {
  if (!of_one_type(inputs) ||
      inputs[0].toTensor().sizes() != inputs[1].toTensor().sizes())
    return false;
  if (reduction == 0) return elementwise(inputs, results);
  results.add_contiguous({}, inputs[0].toTensor().scalar_type());
  return true;
}
// self, target, reduction
bool loss(Arguments a, Shapes& results) {
  return add_loss(a.slice(0, 2), a[2].toInt(), results);
}

// self, output_size
bool adaptive_avg_pool(Arguments a, Shapes& results) {
  const at::Tensor& self = a[0].toTensor();
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
  const at::Tensor &grad = a[0].toTensor(), &self = a[1].toTensor();
  if (grad.dim() != self.dim() || self.numel() == 0) return false;
  results.add(self.sizes(), self.suggest_memory_format(), self.scalar_type());
  return true;
}

constexpr NamedShapes kOfElements[] = {
    {"aten::_adaptive_avg_pool2d", adaptive_avg_pool},
    {"aten::_adaptive_avg_pool2d_backward", adaptive_avg_pool_backward},
    {"aten::_dirichlet_grad", alike<3>},
    {"aten::_prelu_kernel", binary},
    {"aten::_sample_dirichlet", alike<1>},
    {"aten::_standard_gamma_grad", alike<2>},
    {"aten::abs", unary},
    {"aten::abs_", in_place},
    {"aten::binomial", alike<2>},
    {"aten::dot", dot},
    {"aten::floor_divide", binary},
    {"aten::hardswish", unary},
    {"aten::hardswish_", in_place},
    {"aten::hardswish_backward", binary},
    {"aten::hardtanh", unary_real},
    {"aten::hardtanh_", in_place},
    {"aten::hardtanh_backward", binary},
    {"aten::huber_loss", loss},
    {"aten::logical_and", binary_bool},
    {"aten::logical_not", unary_bool},
    {"aten::logical_or", binary_bool},
    {"aten::logical_xor", binary_bool},
    {"aten::logit", unary_real},
    {"aten::logsumexp", logsumexp},
    {"aten::masked_fill.Scalar", masked_fill_new},
    {"aten::masked_fill.Tensor", masked_fill_new},
    {"aten::isnan", unary_bool},
    {"aten::max", to_a_number},
    {"aten::median", to_a_number},
    {"aten::min", to_a_number},
    {"aten::nan_to_num", unary_real},
    {"aten::native_dropout_backward", dropout_backward},
    {"aten::prod", product},
    {"aten::relu", unary},
    {"aten::relu_", in_place},
    {"aten::rsub.Scalar", unary_real},
    {"aten::rsub.Tensor", binary},
    {"aten::std.correction", variance<1>},
    {"aten::std_mean.correction", variance<2>},
    {"aten::var.correction", variance<1>},
    {"aten::var_mean.correction", variance<2>},
    {"aten::where.self", where},
    {"aten::where.self_out", where},
};

}  // namespace

ShapeFunction shape_function_of_elements(std::string_view name) {
  return find_named(kOfElements, name);
}

}  // namespace npu
