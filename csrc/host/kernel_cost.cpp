#include "csrc/host/kernel_cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

namespace npu {
namespace {

// Picoseconds per element of the largest tensor, float32; of a fused
// optimizer's step, per element of all its tensors.
struct Cost {
  std::string_view name;
  int ps;
};
constexpr Cost kCosts[] = {
    {"aten::_foreach_add", 130},
    {"aten::_foreach_add_", 130},
    {"aten::_foreach_addcdiv_", 200},
    {"aten::_foreach_addcmul_", 170},
    {"aten::_foreach_div", 150},
    {"aten::_foreach_div_", 150},
    {"aten::_foreach_lerp_", 170},
    {"aten::_foreach_mul", 130},
    {"aten::_foreach_mul_", 130},
    {"aten::_foreach_sqrt", 370},
    {"aten::_foreach_sub_", 130},
    {"aten::_fused_adagrad_", 140},
    {"aten::_fused_adam_", 140},
    {"aten::_fused_adamw_", 140},
    {"aten::_fused_sgd_", 140},
    {"aten::_log_softmax", 430},
    {"aten::_log_softmax_backward_data", 350},
    {"aten::_softmax", 430},
    {"aten::_softmax_backward_data", 350},
    {"aten::binary_cross_entropy_backward", 700},
    {"aten::cat", 160},
    {"aten::copy_", 130},
    {"aten::fill_", 70},
    {"aten::masked_fill", 250},
    {"aten::masked_fill_", 250},
    {"aten::mean", 80},
    {"aten::mse_loss", 170},
    {"aten::native_dropout_backward", 150},
    {"aten::native_layer_norm", 400},
    {"aten::native_layer_norm_backward", 380},
    {"aten::relu", 130},
    {"aten::relu_", 130},
    {"aten::select_backward", 130},
    {"aten::slice_backward", 130},
    {"aten::sum", 80},
    {"aten::where", 250},
    {"aten::zero_", 70},
};
static_assert(std::is_sorted(std::begin(kCosts), std::end(kCosts),
                             [](const Cost& a, const Cost& b) {
                               return a.name < b.name;
                             }));

// Of element-wise kernels, the others take kElement.
constexpr Cost kElementWise[] = {
    {"aten::abs", 130},     {"aten::add", 130},   {"aten::clamp_min", 130},
    {"aten::exp", 620},     {"aten::log", 780},   {"aten::maximum", 130},
    {"aten::minimum", 130}, {"aten::mul", 130},   {"aten::neg", 130},
    {"aten::sub", 130},     {"aten::tanh", 2100},
};
constexpr int kElement = 250;

template <size_t N>
int find(const Cost (&costs)[N], std::string_view name, int otherwise) {
  const Cost* found = std::lower_bound(
      costs, costs + N, name,
      [](const Cost& c, std::string_view name) { return c.name < name; });
  return found != costs + N && found->name == name ? found->ps : otherwise;
}

// A multiplication of a product, and an element of the largest matrix, where
// matrices are narrow.
constexpr double kMultiplicationNs = 0.018, kNarrowNs = 0.4;

// A score of attention over vectors of `width`. `q`, `k`: the queries and keys.
double attention_ns(const npu_view& q, const npu_view& k) {
  const int64_t width = q.sizes[q.ndim - 1];
  const double scores =
      double(elements(q)) / double(width) * double(k.sizes[k.ndim - 2]);
  return scores * (0.8 + 0.03 * double(width));
}

}  // namespace

bool is_fused_step(std::string_view name) {
  return name.starts_with("aten::_fused_") && name.ends_with('_');
}

int64_t elements(const npu_view& view) {
  int64_t n = 1;
  for (uint32_t d = 0; d < view.ndim; ++d) n *= view.sizes[d];
  return n;
}

std::optional<double> multiplications(std::string_view name,
                                      at::ArrayRef<npu_view> views) {
  const bool batched = name == "aten::bmm" || name == "aten::baddbmm";
  if (!batched && name != "aten::mm" && name != "aten::addmm") return {};
  if (views.size() < 3) return {};
  // The last three are the factors and the result. The product of their numbers
  // of elements is the square of the number of multiplications, times the
  // number of batches.
  double all = 1;
  for (const npu_view& view : views.slice(views.size() - 3))
    all *= double(elements(view));
  if (batched) all /= double(std::max<int64_t>(views.back().sizes[0], 1));
  return std::sqrt(all);
}

std::optional<double> kernel_ns(std::string_view name, bool element_wise,
                                at::ArrayRef<npu_view> views) {
  int64_t most = 0, all = 0;
  for (const npu_view& view : views) {
    most = std::max(most, elements(view));
    all += elements(view);
  }
  if (const auto products = multiplications(name, views))
    return std::max(*products * kMultiplicationNs, double(most) * kNarrowNs);
  if (name == kAttention) return attention_ns(views[0], views[1]);
  if (name == kAttentionBackward) return 2 * attention_ns(views[1], views[2]);
  const int ps =
      element_wise ? find(kElementWise, name, kElement) : find(kCosts, name, 0);
  if (!ps) return {};
  return double(is_fused_step(name) ? all : most) * ps / 1000;
}

}  // namespace npu
