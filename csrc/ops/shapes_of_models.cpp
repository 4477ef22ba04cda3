// Shape functions of losses, and of layers that are not in shapes_by_hand.cpp,
// which says what false means.
#include <ATen/ExpandUtils.h>

#include "csrc/ops/shape_arguments.h"

namespace npu {
namespace {

using at::Tensor;

// `how`: N, C, HxW, group
bool are_groups(const Tensor& input, Arguments how) {
  const int64_t n = how[0].toInt(), channels = how[1].toInt();
  const int64_t rest = how[2].toInt(), group = how[3].toInt();
  return input.dim() >= 2 && input.numel() > 0 && input.size(0) == n &&
         input.size(1) == channels && group > 0 && channels % group == 0 &&
         input.numel() == n * channels * rest;
}

// input, weight, bias, N, C, HxW, group
bool group_norm(Arguments a, Shapes& results) {
  const Tensor& input = tensor(a[0]);
  const int64_t n = a[3].toInt(), channels = a[4].toInt(), group = a[6].toInt();
  if (!are_groups(input, a.slice(3, 4)) || !has_sizes(a[1], {channels}) ||
      !has_sizes(a[2], {channels}))
    return false;
  results.add(input.sizes(), format_of(input), input.scalar_type());
  for (int i = 0; i < 2; ++i)
    results.add_contiguous({n, group}, type_of(a[1], input));
  return true;
}

// grad, input, mean, rstd, weight, N, C, HxW, group, wanted
bool group_norm_backward(Arguments a, Shapes& results) {
  const Tensor& input = tensor(a[1]);
  const auto wanted = a[9].toBoolList();
  if (tensor(a[0]).sizes() != input.sizes() ||
      !are_groups(input, a.slice(5, 4)) || !has_sizes(a[4], {a[6].toInt()}) ||
      ((wanted[1] || wanted[2]) && !opt_tensor(a[4])))
    return false;
  results.add_if(wanted[0], input.sizes(), format_of(input),
                 input.scalar_type());
  for (const size_t i : {1, 2})
    results.add_if(wanted[i], {a[6].toInt()}, at::MemoryFormat::Contiguous,
                   type_of(a[4], input));
  return true;
}

bool fit(const Tensor& self, const Tensor& target) {
  return self.sizes() == target.sizes() &&
         self.scalar_type() == target.scalar_type();
}

// Adds the result of a loss whose elements, without a reduction, would be like
// `each`.
void add_reduced(const Tensor& each, int64_t reduction, Shapes& results) {
  if (reduction == 0) return results.add_empty_like(each);
  results.add_contiguous({}, each.scalar_type());
}

// self, target, weight, reduction
bool binary_cross_entropy(Arguments a, Shapes& results) {
  if (!fit(tensor(a[0]), tensor(a[1])) || opt_tensor(a[2])) return false;
  add_reduced(tensor(a[0]), a[3].toInt(), results);
  return true;
}
// grad, self, and perhaps a target. The result is like self, to which the other
// must be equal in sizes and dtype.
template <size_t kOther>
bool backward_of(Arguments a, Shapes& results) {
  if (!fit(tensor(a[1]), tensor(a[kOther]))) return false;
  results.add_empty_like(tensor(a[1]));
  return true;
}
// self, target, weight, pos_weight, reduction
bool binary_cross_entropy_with_logits(Arguments a, Shapes& results) {
  const Tensor& target = tensor(a[1]);
  if (!fit(tensor(a[0]), target)) return false;
  for (const size_t i : {2, 3}) {
    const Tensor* weight = opt_tensor(a[i]);
    if (weight && (weight->scalar_type() != target.scalar_type() ||
                   !at::is_expandable_to(weight->sizes(), target.sizes())))
      return false;
  }
  add_reduced(target, a[4].toInt(), results);
  return true;
}

bool log_sigmoid(Arguments a, Shapes& results) {
  for (int i = 0; i < 2; ++i)
    results.add_contiguous(tensor(a[0]).sizes(), tensor(a[0]).scalar_type());
  return true;
}

bool are_classes(const Tensor& self, const Tensor& target,
                 const c10::IValue& weight) {
  return self.dim() == 4 && target.dim() == 3 &&
         self.size(0) == target.size(0) &&
         self.sizes().slice(2) == target.sizes().slice(1) &&
         has_sizes(weight, {self.size(1)});
}
// self, target, weight, reduction
bool nll_loss2d(Arguments a, Shapes& results) {
  const Tensor &self = tensor(a[0]), &target = tensor(a[1]);
  if (!are_classes(self, target, a[2])) return false;
  const bool each = a[3].toInt() == 0;
  results.add_contiguous(each ? target.sizes() : at::IntArrayRef(),
                         self.scalar_type());
  results.add_contiguous({}, self.scalar_type());
  return true;
}
// grad, self, target, weight
bool nll_loss2d_backward(Arguments a, Shapes& results) {
  if (!are_classes(tensor(a[1]), tensor(a[2]), a[3])) return false;
  results.add_empty_like(tensor(a[1]));
  return true;
}

// weight, indices, offsets, scale_grad, mode, sparse, per_sample_weights,
// include_last_offset, padding_idx. Sums of narrow numbers have a loop that
// needs no list of the bag of each index.
template <bool kForwardOnly>
bool embedding_bag(Arguments a, Shapes& results) {
  const Tensor &weight = tensor(a[0]), &indices = tensor(a[1]),
               &offsets = tensor(a[2]);
  if (weight.dim() != 2 || indices.dim() != 1 || offsets.dim() != 1 ||
      weight.numel() == 0 || indices.numel() == 0 || offsets.numel() < 2 ||
      indices.scalar_type() != offsets.scalar_type() || !is_plain(weight))
    return false;
  enum : int64_t { kSum, kMean, kMax };
  const int64_t mode = a[4].toInt();
  const int64_t bags = offsets.numel() - int64_t(a[7].toBool());
  const bool listed =
      mode != kSum || weight.scalar_type() == at::kDouble || a[8].toInt() >= 0;
  const int64_t sized = kForwardOnly && mode == kSum ? offsets.numel() : bags;
  const int64_t values[] = {bags, weight.size(1)};
  results.add_contiguous(values, weight.scalar_type());
  results.add_contiguous({listed ? indices.numel() : 0}, indices.scalar_type());
  results.add_contiguous({sized}, indices.scalar_type());
  results.add_contiguous(mode == kMax ? at::IntArrayRef(values) : sized,
                         indices.scalar_type());
  return true;
}
bool add_weights(const Tensor& grad, int64_t weights, Shapes& results) {
  if (grad.dim() != 2 || weights < 1) return false;
  results.add_contiguous({weights, grad.size(1)}, grad.scalar_type());
  return true;
}
// grad, indices, offset2bag, bag_size, maximum_indices, num_weights
bool embedding_bag_dense_backward(Arguments a, Shapes& results) {
  return add_weights(tensor(a[0]), a[5].toInt(), results);
}
// grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights,
// scale_grad, mode, sparse
bool embedding_bag_backward(Arguments a, Shapes& results) {
  return !a[9].toBool() && add_weights(tensor(a[0]), a[6].toInt(), results);
}

// grad, self, target, reduction
bool loss_backward(Arguments a, Shapes& results) {
  if (!fit(tensor(a[1]), tensor(a[2]))) return false;
  results.add_contiguous(tensor(a[1]).sizes(), tensor(a[1]).scalar_type());
  return true;
}

// grad, self
bool glu_backward(Arguments a, Shapes& results) {
  const Tensor &grad = tensor(a[0]), &self = tensor(a[1]);
  if (2 * grad.numel() != self.numel() ||
      grad.scalar_type() != self.scalar_type())
    return false;
  results.add_contiguous(self.sizes(), self.scalar_type());
  return true;
}

constexpr NamedShapes kOfModels[] = {
    {"aten::_embedding_bag", embedding_bag<false>},
    {"aten::_embedding_bag_backward", embedding_bag_backward},
    {"aten::_embedding_bag_dense_backward", embedding_bag_dense_backward},
    {"aten::_embedding_bag_forward_only", embedding_bag<true>},
    {"aten::binary_cross_entropy", binary_cross_entropy},
    {"aten::binary_cross_entropy_backward", backward_of<2>},
    {"aten::binary_cross_entropy_with_logits",
     binary_cross_entropy_with_logits},
    {"aten::glu_backward", glu_backward},
    {"aten::log_sigmoid_backward", backward_of<0>},
    {"aten::log_sigmoid_forward", log_sigmoid},
    {"aten::mse_loss_backward", loss_backward},
    {"aten::native_group_norm", group_norm},
    {"aten::native_group_norm_backward", group_norm_backward},
    {"aten::nll_loss2d_backward", nll_loss2d_backward},
    {"aten::nll_loss2d_forward", nll_loss2d},
    {"aten::smooth_l1_loss_backward.grad_input", loss_backward},
};

}  // namespace

ShapeFunction shape_function_of_models(std::string_view name) {
  return find_named(kOfModels, name);
}

}  // namespace npu
