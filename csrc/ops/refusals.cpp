#include "csrc/ops/refusals.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/index_meta_dispatch.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "csrc/host/kernel_mode.h"
#include "csrc/ops/shape_arguments.h"
#include "csrc/ops/stack_map.h"

namespace npu {
namespace {

using at::Tensor;

// self, mat1, mat2
bool addmm(Arguments a) {
  const Tensor &m1 = tensor(a[1]), &m2 = tensor(a[2]);
  return m1.dim() == 2 && m2.dim() == 2 &&
         !at::is_expandable_to(tensor(a[0]).sizes(), {m1.size(0), m2.size(1)});
}

// self, mat, vec
bool addmv(Arguments a) {
  return tensor(a[1]).dim() == 2 &&
         !at::is_expandable_to(tensor(a[0]).sizes(), {tensor(a[1]).size(0)});
}

// input, weight, bias, stride, padding, dilation, transposed, output_padding,
// groups
bool convolution(Arguments a) {
  const Tensor &input = tensor(a[0]), &weight = tensor(a[1]);
  const int64_t groups = a[8].toInt();
  if (input.dim() < 3 || weight.dim() != input.dim() || groups <= 0)
    return false;
  const bool transposed = a[6].toBool();
  const int64_t channels = weight.size(1) * groups;
  return weight.size(0) % groups ||
         input.size(1) != (transposed ? weight.size(0) : channels) ||
         !has_sizes(a[2], {transposed ? channels : weight.size(0)});
}

// How many elements a mask selects, which only the device knows.
constexpr int64_t kUnknown = (int64_t(1) << 31) - 1;

// Whether no mask among the indices has other sizes than what it selects from.
bool masks_fit(const Tensor& self, c10::ArrayRef<c10::IValue> indices) {
  int64_t dim = 0;
  for (const c10::IValue& value : indices) {
    const Tensor* const index = opt_tensor(value);
    if (!index || !is_mask(*index)) {
      ++dim;
      continue;
    }
    if (index->dim() == 0) return false;  // by an assertion of torch
    for (const int64_t size : index->sizes())
      if (dim >= self.dim() || self.size(dim++) != size) return false;
  }
  return true;
}

// The sizes of what is selected where masks select so many; nothing where
// torch refuses that.
std::optional<std::vector<int64_t>> indexed(const Tensor& self,
                                            c10::ArrayRef<c10::IValue> indices,
                                            int64_t selected) {
  c10::List<std::optional<Tensor>> metas;
  for (const c10::IValue& value : indices) {
    const Tensor* const index = opt_tensor(value);
    if (!index)
      metas.push_back(std::nullopt);
    else if (!is_mask(*index))
      metas.push_back(to_meta(*index));
    else
      for (int64_t dim = 0; dim < index->dim(); ++dim)
        metas.push_back(
            at::detail::empty_strided_meta({selected}, {1}, at::kLong));
  }
  try {
    const KernelMode mode;
    return at::meta::index(to_meta(self), metas).sizes().vec();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

// self, indices, values
bool index_put(Arguments a) {
  const auto indices = a[1].toListRef();
  if (!masks_fit(tensor(a[0]), indices)) return true;
  auto to = indexed(tensor(a[0]), indices, kUnknown);
  if (!to) to = indexed(tensor(a[0]), indices, 1);
  const at::IntArrayRef values = tensor(a[2]).sizes();
  if (!to || values.size() > to->size()) return true;
  return !std::equal(values.rbegin(), values.rend(), to->rbegin(),
                     [](int64_t value, int64_t size) {
                       return value == 1 || value == size || size == kUnknown;
                     });
}

// input, weight, bias, N, C, HxW, group. The kernel does not refuse other
// sizes, but then returns others, too.
bool group_norm(Arguments a) {
  const Tensor& input = tensor(a[0]);
  return input.dim() < 2 || input.size(0) != a[3].toInt() ||
         input.size(1) != a[4].toInt();
}

// mean, std, generator, out. Where one of the first is a number, the kernel
// leaves the size of the last as it is, and may still broadcast the other.
bool normal(Arguments a) {
  if (a.size() < 4 || !a[3].isTensor() || a[0].isTensor() == a[1].isTensor())
    return false;
  return tensor(a[3]).sizes() != tensor(a[0].isTensor() ? a[0] : a[1]).sizes();
}

// Whether a walk over the memory of both meets the same elements in turn.
bool walks_alike(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t d = 0; d < a.dim(); ++d)
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  return true;
}

// Parameters, gradients, and the optimizer's states of each parameter. The
// kernel walks all of them as flat memory and looks at no strides, so it would
// compute with other elements. This raises, where CUDA's kernel does, too.
template <size_t kLists>
bool fused_step(Arguments a) {
  const auto parameters = a[0].toListRef();
  for (size_t list = 0; list < kLists; ++list) {
    const auto tensors = a[list].toListRef();
    if (tensors.empty() && list > 1) continue;  // a state that is not asked for
    TORCH_CHECK(tensors.size() == parameters.size(), "a fused optimizer got ",
                parameters.size(), " parameters, and a list of ",
                tensors.size(),
                " gradients or states: give it one for each parameter");
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor &parameter = tensor(parameters[i]), &t = tensor(tensors[i]);
      TORCH_CHECK(
          parameter.is_non_overlapping_and_dense() && walks_alike(parameter, t),
          "a fused optimizer needs parameters without gaps and overlaps, and "
          "gradients and states of the same sizes and strides; parameter ",
          i, " has sizes ", parameter.sizes(), " and strides ",
          parameter.strides(), ", and its ", list < 2 ? "gradient" : "state",
          " has sizes ", t.sizes(), " and strides ", t.strides(),
          ". Make the optimizer with fused=False, or copy the tensors into "
          "such "
          "memory, as by torch.empty_like(parameter).copy_(gradient)");
    }
  }
  return false;
}

// query, key, value, dropout
bool flash_attention(Arguments a) { return a[3].toDouble() > 0; }

// self, dim, index, source
bool index_rows(Arguments a) {
  const Tensor &self = tensor(a[0]), &source = tensor(a[3]);
  const auto dim = dim_of(a[1], std::max<int64_t>(source.dim(), 1));
  if (!dim || self.dim() != source.dim()) return true;
  for (int64_t d = 0; d < source.dim(); ++d)
    if (d != int64_t(*dim) && self.size(d) != source.size(d)) return true;
  return tensor(a[2]).numel() !=
         (source.dim() ? source.size(int64_t(*dim)) : 1);
}

// self, mask
bool masked_scatter(Arguments a) {
  return !at::is_expandable_to(tensor(a[1]).sizes(), tensor(a[0]).sizes());
}

// self, num_samples, replacement
bool multinomial(Arguments a) {
  const Tensor& self = tensor(a[0]);
  constexpr int64_t kMost = 1 << 24;  // categories
  return self.dim() > 0 && (self.size(-1) > kMost ||
                            (!a[2].toBool() && a[1].toInt() > self.size(-1)));
}

// self, target
bool nll_loss2d(Arguments a) {
  const Tensor &self = tensor(a[0]), &target = tensor(a[1]);
  return self.dim() == 4 && target.dim() == 3 &&
         (self.size(0) != target.size(0) ||
          self.sizes().slice(2) != target.sizes().slice(1));
}

// self, tau, other, left
bool ormqr(Arguments a) {
  const Tensor &self = tensor(a[0]), &tau = tensor(a[1]), &other = tensor(a[2]);
  if (self.dim() < 2 || tau.dim() < 1 || other.dim() < 2) return false;
  const int64_t side = other.size(a[3].toBool() ? -2 : -1);
  return self.size(-2) != side || tau.size(-1) > side ||
         tau.size(-1) != std::min(side, self.size(-1));
}

// The integers between which a dtype has all of them.
struct Integers {
  int64_t low, high;
};
Integers integers(at::ScalarType type) {
  if (at::isFloatingType(type)) {
    const int digits = type == at::kHalf       ? 11
                       : type == at::kBFloat16 ? 8
                       : type == at::kFloat    ? 24
                                               : 53;
    return {-(int64_t(1) << digits), int64_t(1) << digits};
  }
  if (type == at::kBool) return {0, 1};
  const bool is_signed = at::isSignedType(type);
  const int bits = 8 * int(at::elementSize(type)) - is_signed;
  const int64_t high = bits >= 63 ? INT64_MAX : (int64_t(1) << bits) - 1;
  return {is_signed ? -high - 1 : 0, high};
}

// self, and then from and to, or to, or neither. Among floats, the kernel warns
// where some integers between the bounds are missing.
bool random(Arguments a) {
  const auto [low, high] = integers(tensor(a[0]).scalar_type());
  for (const c10::IValue& bound : a.slice(1)) {
    if (!bound.isInt()) continue;
    const int64_t n = bound.toInt();
    if (n < low || (n > high && n - 1 > high)) return true;
  }
  return a.size() > 2 && a[1].isInt() && a[2].isInt() &&
         a[1].toInt() >= a[2].toInt();
}

// n, generator, out
bool randperm(Arguments a) {
  const int64_t n = a[0].toInt();
  return n > 0 && n - 1 > integers(tensor(a.back()).scalar_type()).high;
}

// torch.use_deterministic_algorithms(): the kernel raises or warns.
bool alerts(Arguments) { return at::globalContext().deterministicAlgorithms(); }

// self, index, source, accumulate
bool put(Arguments a) {
  return tensor(a[1]).numel() != tensor(a[2]).numel() ||
         (!a[3].toBool() && alerts(a));
}

struct Named {
  std::string_view name;  // without what tells apart the forms of an operator
  Refusal refusal;
};
constexpr Named kRefusals[] = {
    {"aten::_fused_adagrad", fused_step<3>},
    {"aten::_fused_adam", fused_step<5>},
    {"aten::_fused_adamw", fused_step<5>},
    {"aten::_fused_sgd", fused_step<3>},
    {"aten::_index_put_impl", index_put},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", flash_attention},
    {"aten::_unsafe_index_put", index_put},
    {"aten::addmm", addmm},
    {"aten::addmv", addmv},
    {"aten::convolution", convolution},
    {"aten::index_add", index_rows},
    {"aten::index_put", index_put},
    {"aten::index_reduce", index_rows},
    {"aten::masked_scatter", masked_scatter},
    {"aten::max_unpool2d", alerts},
    {"aten::max_unpool3d", alerts},
    {"aten::multinomial", multinomial},
    {"aten::native_group_norm", group_norm},
    {"aten::nll_loss2d_forward", nll_loss2d},
    {"aten::normal", normal},
    {"aten::ormqr", ormqr},
    {"aten::put", put},
    {"aten::random", random},
    {"aten::randperm", randperm},
};

}  // namespace

Refusal refusal_of(std::string_view name) {
  name = name.substr(0, name.find('.'));
  if (name.ends_with('_')) name.remove_suffix(1);
  for (const Named& each : kRefusals)
    if (each.name == name) return each.refusal;
  return nullptr;
}

}  // namespace npu
