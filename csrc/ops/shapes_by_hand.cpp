// Shape functions of the operators that training and serving call most and that
// are not structured. Each says what the cpu kernel returns, strides included,
// and is compared with the kernel once per identity (trial.h). False: the call
// is wrong or unusual, and the meta kernel or the kernel itself is asked.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <numeric>

#include "csrc/ops/shape_arguments.h"
#include "csrc/ops/stride_order.h"

namespace npu {
namespace {

using at::Tensor;

// The operator writes its only tensor, whatever its shape.
bool fills(Arguments, Shapes&) { return true; }

// input, normalized_shape, weight, bias
bool layer_norm(Arguments a, Shapes& results) {
  const Tensor& input = tensor(a[0]);
  const auto normalized = a[1].toIntVector();
  if (normalized.empty() || size_t(input.dim()) < normalized.size())
    return false;
  const size_t axis = size_t(input.dim()) - normalized.size();
  if (input.sizes().slice(axis) != at::IntArrayRef(normalized) ||
      !has_sizes(a[2], normalized) || !has_sizes(a[3], normalized))
    return false;
  results.add_contiguous(input.sizes(), input.scalar_type());
  std::vector<int64_t> rows = input.sizes().vec();
  std::fill(rows.begin() + ptrdiff_t(axis), rows.end(), 1);
  for (int i = 0; i < 2; ++i)
    results.add_contiguous(rows, type_of(a[2], input));
  return true;
}

// grad, input, normalized_shape, mean, rstd, weight, bias, wanted
bool layer_norm_backward(Arguments a, Shapes& results) {
  const Tensor& input = tensor(a[1]);
  const Tensor *weight = opt_tensor(a[5]), *bias = opt_tensor(a[6]);
  const auto normalized = a[2].toIntVector();
  const auto wanted = a[7].toBoolList();
  if (tensor(a[0]).sizes() != input.sizes() ||
      size_t(input.dim()) < normalized.size() ||
      input.sizes().slice(size_t(input.dim()) - normalized.size()) !=
          at::IntArrayRef(normalized) ||
      (wanted[1] && !weight) || (wanted[2] && !weight && !bias))
    return false;
  using at::MemoryFormat;
  results.add_if(wanted[0], input.sizes(), MemoryFormat::Contiguous,
                 input.scalar_type());
  for (size_t i : {1, 2}) {
    const Tensor* like = i == 2 && bias ? bias : weight;
    results.add_if(wanted[i], normalized, MemoryFormat::Contiguous,
                   like ? like->scalar_type() : input.scalar_type());
  }
  return true;
}

// weight, indices
bool embedding(Arguments a, Shapes& results) {
  const Tensor &weight = tensor(a[0]), &indices = tensor(a[1]);
  if (weight.dim() != 2) return false;
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  results.add_contiguous(sizes, weight.scalar_type());
  return true;
}

// grad, indices, num_weights
bool embedding_dense_backward(Arguments a, Shapes& results) {
  const Tensor &grad = tensor(a[0]), &indices = tensor(a[1]);
  if (grad.dim() == 0 || grad.numel() != indices.numel() * grad.size(-1))
    return false;
  results.add_contiguous({a[2].toInt(), grad.size(-1)}, grad.scalar_type());
  return true;
}

// Adds a result of the flash kernel, which makes it with the second and the
// third dimension exchanged.
void add_exchanged(Shapes& results, at::IntArrayRef sizes,
                   at::ScalarType type) {
  StrideOrder order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[1], order[2]);
  results.add(sizes, dense_strides(sizes, order), type);
}

bool are_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  return q.dim() == 4 && k.dim() == 4 && v.dim() == 4 &&
         q.size(0) == k.size(0) && k.size(0) == v.size(0) &&
         q.size(1) == k.size(1) && k.size(1) == v.size(1) &&
         k.size(2) == v.size(2) && q.size(3) == k.size(3) &&
         k.size(3) == v.size(3) && q.scalar_type() == k.scalar_type() &&
         k.scalar_type() == v.scalar_type();
}

bool is_mask(const c10::IValue& value, const Tensor& q, const Tensor& k) {
  const Tensor* mask = opt_tensor(value);
  if (!mask) return true;
  return (mask->dim() == 2 || mask->dim() == 4) &&
         (mask->scalar_type() == at::kBool ||
          mask->scalar_type() == q.scalar_type()) &&
         at::is_expandable_to(mask->sizes(),
                              {q.size(0), q.size(1), q.size(2), k.size(2)});
}

// query, key, value, dropout, causal, mask. No trial compares it with the
// kernel, since the operator may draw random numbers.
bool flash_attention(Arguments a, Shapes& results) {
  const Tensor &q = tensor(a[0]), &k = tensor(a[1]);
  if (!are_attention(q, k, tensor(a[2])) || !is_mask(a[5], q, k)) return false;
  results.add_empty_like(q);
  add_exchanged(results, q.sizes().slice(0, 3),
                at::toOpMathType(q.scalar_type()));
  return true;
}

// grad, query, key, value, out, logsumexp, dropout, causal, mask
bool flash_attention_backward(Arguments a, Shapes& results) {
  const Tensor &q = tensor(a[1]), &k = tensor(a[2]), &v = tensor(a[3]);
  if (!opt_tensor(a[0]) || tensor(a[0]).sizes() != q.sizes() ||
      !are_attention(q, k, v) || !is_mask(a[8], q, k))
    return false;
  for (const Tensor* t : {&q, &k, &v})
    add_exchanged(results, t->sizes(), t->scalar_type());
  return true;
}

// The size of a convolution's result. `how`: stride, padding, dilation,
// transposed, output_padding, groups.
bool convolved(const Tensor& input, const Tensor& weight, Arguments how,
               std::vector<int64_t>& sizes) {
  const auto stride = how[0].toIntVector(), padding = how[1].toIntVector(),
             dilation = how[2].toIntVector(), more = how[4].toIntVector();
  const bool transposed = how[3].toBool();
  const int64_t groups = how[5].toInt();
  if (input.dim() < 3 || input.dim() > 5 || weight.dim() != input.dim() ||
      input.numel() == 0 || weight.numel() == 0 || groups <= 0 ||
      weight.size(0) % groups ||
      input.size(1) != (transposed ? weight.size(0) : weight.size(1) * groups))
    return false;
  const size_t spatial = size_t(input.dim()) - 2;
  for (const auto* list : {&stride, &padding, &dilation, &more})
    if (list->size() != 1 && list->size() != spatial) return false;
  sizes = {input.size(0),
           transposed ? weight.size(1) * groups : weight.size(0)};
  for (size_t i = 0; i < spatial; ++i) {
    const auto at = [&](const std::vector<int64_t>& list) {
      return list.size() == 1 ? list[0] : list[i];
    };
    const int64_t size = input.size(int64_t(i) + 2), step = at(stride),
                  window = at(dilation) * (weight.size(int64_t(i) + 2) - 1) + 1,
                  room = size + 2 * at(padding) - window, added = at(more);
    const int64_t result =
        transposed ? (size - 1) * step - 2 * at(padding) + window + added
                   : room / std::max<int64_t>(step, 1) + 1;
    if (step <= 0 || at(dilation) <= 0 || at(padding) < 0 || added < 0 ||
        result <= 0 ||
        (transposed ? added >= std::max(step, at(dilation)) : room < 0))
      return false;
    sizes.push_back(result);
  }
  return true;
}

// The memory format of the results of cpu's convolutions.
at::MemoryFormat convolution_format(const Tensor& input, const Tensor& weight) {
  const at::MemoryFormat own = format_of(input);
  return own == at::MemoryFormat::Contiguous ? format_of(weight) : own;
}

// input, weight, bias, stride, padding, dilation, transposed, output_padding,
// groups
bool convolution(Arguments a, Shapes& results) {
  const Tensor &input = tensor(a[0]), &weight = tensor(a[1]);
  std::vector<int64_t> sizes;
  if (input.scalar_type() != weight.scalar_type() ||
      !convolved(input, weight, a.slice(3), sizes) ||
      !has_sizes(a[2], {sizes[1]}))
    return false;
  results.add(sizes, convolution_format(input, weight), input.scalar_type());
  return true;
}

// grad, input, weight, bias_sizes, stride, padding, dilation, transposed,
// output_padding, groups, wanted
bool convolution_backward(Arguments a, Shapes& results) {
  const Tensor &grad = tensor(a[0]), &input = tensor(a[1]),
               &weight = tensor(a[2]);
  std::vector<int64_t> sizes;
  if (!convolved(input, weight, a.slice(4, 6), sizes) ||
      grad.sizes() != at::IntArrayRef(sizes))
    return false;
  const auto wanted = a[10].toBoolList();
  const at::MemoryFormat format = convolution_format(input, weight);
  const at::ScalarType type = weight.scalar_type();
  results.add_if(wanted[0], input.sizes(), format, type);
  results.add_if(wanted[1], weight.sizes(), format, type);
  results.add_if(wanted[2], {sizes[1]}, at::MemoryFormat::Contiguous, type);
  return true;
}

// input, weight, bias, running_mean, running_var, training
bool batch_norm(Arguments a, Shapes& results) {
  const Tensor& input = tensor(a[0]);
  if (input.dim() < 2 || input.numel() == 0) return false;
  const int64_t channels = input.size(1);
  for (size_t i = 1; i <= 4; ++i)
    if (!has_sizes(a[i], {channels})) return false;
  results.add(input.sizes(), format_of(input), input.scalar_type());
  for (int i = 0; i < 2; ++i)
    results.add_contiguous({a[5].toBool() ? channels : 0},
                           type_of(a[1], input));
  return true;
}

// grad, input, weight, running_mean, running_var, save_mean, save_invstd,
// train, eps, wanted
bool batch_norm_backward(Arguments a, Shapes& results) {
  const Tensor &grad = tensor(a[0]), &input = tensor(a[1]);
  if (grad.sizes() != input.sizes() || input.dim() < 2 || input.numel() == 0)
    return false;
  const auto wanted = a[9].toBoolList();
  results.add_if(wanted[0], input.sizes(), format_of(input),
                 input.scalar_type());
  for (size_t i : {1, 2})
    results.add_if(wanted[i], {input.size(1)}, at::MemoryFormat::Contiguous,
                   type_of(a[2], input));
  return true;
}

// self, dim, index
bool index_select(Arguments a, Shapes& results) {
  const Tensor &self = tensor(a[0]), &index = tensor(a[2]);
  const auto dim = dim_of(a[1], self.dim());
  if (!dim || index.dim() > 1) return false;
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[*dim] = index.numel();
  results.add_contiguous(sizes, self.scalar_type());
  return true;
}

// grad, input_sizes, dim, start, end, step
bool slice_backward(Arguments a, Shapes& results) {
  const std::vector<int64_t> sizes = a[1].toIntVector();
  const auto dim = dim_of(a[2], int64_t(sizes.size()));
  const int64_t step = a[5].toInt();
  if (!dim || step <= 0) return false;
  const int64_t size = sizes[*dim];
  const auto place = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t start = place(a[3].toInt());
  const int64_t length = std::max<int64_t>(place(a[4].toInt()) - start, 0);
  std::vector<int64_t> part = sizes;
  part[*dim] = (length + step - 1) / step;
  if (tensor(a[0]).sizes() != at::IntArrayRef(part)) return false;
  results.add_contiguous(sizes, tensor(a[0]).scalar_type());
  return true;
}

// self, pad, value
bool constant_pad(Arguments a, Shapes& results) {
  const Tensor& self = tensor(a[0]);
  const std::vector<int64_t> pad = a[1].toIntVector();
  std::vector<int64_t> sizes = self.sizes().vec();
  if (pad.size() % 2 || pad.size() > 2 * sizes.size()) return false;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    int64_t& size = sizes[sizes.size() - 1 - i];
    if (size + std::min(pad[2 * i], pad[2 * i + 1]) < 0) return false;
    size += pad[2 * i] + pad[2 * i + 1];
    if (size < 0) return false;
  }
  // Where no side grows, the result is a copy of the part that is left.
  if (std::none_of(pad.begin(), pad.end(), [](int64_t p) { return p > 0; }))
    results.add_empty_like(at::detail::empty_strided_meta(sizes, self.strides(),
                                                          self.scalar_type()));
  else
    results.add(sizes, format_of(self), self.scalar_type());
  return true;
}

// grad, input_sizes, dim, index
bool select_backward(Arguments a, Shapes& results) {
  std::vector<int64_t> sizes = a[1].toIntVector();
  const auto dim = dim_of(a[2], int64_t(sizes.size()));
  if (!dim || !dim_of(a[3], sizes[*dim])) return false;
  std::vector<int64_t> rest = sizes;
  rest.erase(rest.begin() + ptrdiff_t(*dim));
  if (tensor(a[0]).sizes() != at::IntArrayRef(rest)) return false;
  results.add_contiguous(sizes, tensor(a[0]).scalar_type());
  return true;
}

// self, mask, value
bool masked_fill(Arguments a, Shapes&) {
  return tensor(a[1]).scalar_type() == at::kBool &&
         at::is_expandable_to(tensor(a[1]).sizes(), tensor(a[0]).sizes());
}

// self, from
bool copy(Arguments a, Shapes&) {
  return at::is_expandable_to(tensor(a[1]).sizes(), tensor(a[0]).sizes());
}

constexpr NamedShapes kByHand[] = {
    {"aten::_scaled_dot_product_flash_attention_for_cpu", flash_attention},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
     flash_attention_backward},
    {"aten::bernoulli_.float", fills},
    {"aten::constant_pad_nd", constant_pad},
    {"aten::convolution", convolution},
    {"aten::convolution_backward", convolution_backward},
    {"aten::copy_", copy},
    {"aten::embedding", embedding},
    {"aten::embedding_dense_backward", embedding_dense_backward},
    {"aten::exponential_", fills},
    {"aten::fill_.Scalar", fills},
    {"aten::index_select", index_select},
    {"aten::masked_fill_.Scalar", masked_fill},
    {"aten::masked_fill_.Tensor", masked_fill},
    {"aten::native_batch_norm", batch_norm},
    {"aten::native_batch_norm_backward", batch_norm_backward},
    {"aten::native_layer_norm", layer_norm},
    {"aten::native_layer_norm_backward", layer_norm_backward},
    {"aten::normal_", fills},
    {"aten::random_", fills},
    {"aten::select_backward", select_backward},
    {"aten::slice_backward", slice_backward},
    {"aten::uniform_", fills},
    {"aten::zero_", fills},
};

}  // namespace

ShapeFunction shape_function_of(std::string_view name) {
  // An out= argument comes last; the function of the form without it serves.
  if (name.ends_with(".out")) {
    const ShapeFunction found =
        shape_function_of(name.substr(0, name.size() - 4));
    if (found) return found;
  }
  if (const ShapeFunction found = find_named(kByHand, name)) return found;
  for (const auto of : {shape_function_of_elements, shape_function_of_models})
    if (const ShapeFunction found = of(name)) return found;
  return shape_function_of_lists(name);
}

}  // namespace npu
