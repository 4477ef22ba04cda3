#include "csrc/driver/emulated/work.h"

#include <string_view>
#include <vector>

#include "csrc/driver/driver.h"

namespace npu {
namespace {

using Sizes = std::vector<int64_t>;

double product(const Sizes& sizes, size_t from = 0) {
  double all = 1;
  for (size_t i = from; i < sizes.size(); ++i) all *= double(sizes[i]);
  return all;
}

// The operator's own name: "addmm" of "aten::addmm.out".
std::string_view base_name(const char* name) {
  std::string_view base(name);
  if (const size_t at = base.find("::"); at != base.npos)
    base.remove_prefix(at + 2);
  return base.substr(0, base.find('.'));
}

// Whether the name is like "aten::add.out". The last argument of such an
// operator is marked as read and written, but is only written.
bool gives_result_in_out(const char* name) {
  const std::string_view all(name);
  const size_t dot = all.rfind('.');
  return dot != all.npos && all.substr(dot).find("out") != all.npos;
}

// The shapes of a task's tensors, in the order of its arguments.
struct Shapes : std::vector<Sizes> {
  const npu_kernel& kernel;

  Shapes(const npu_kernel& kernel, const uint64_t* words) : kernel(kernel) {
    for (uint32_t i = 0; i < kernel.n_views; ++i)
      push_back(sizes_of(kernel.views[i], words));
  }
  bool writes(size_t i) const { return kernel.views[i].access & NPU_WRITE; }
  bool rank(size_t i, size_t rank) const {
    return i < size() && at(i).size() == rank;
  }
};

// The product of the tensors `a` [.., m, k] and `a + 1` [.., k, n].
double by_matrix(const Shapes& s, size_t a, size_t rank) {
  if (!s.rank(a, rank) || !s.rank(a + 1, rank)) return 0;
  return 2 * product(s[a]) * double(s[a + 1].back());
}
// The product of the tensor `a` and a vector.
double by_vector(const Shapes& s, size_t a, size_t rank) {
  return s.rank(a, rank) ? 2 * product(s[a]) : 0;
}
// x [.., in] times weight [out, in].
double linear(const Shapes& s) {
  if (s.size() < 2 || s[1].empty()) return 0;
  return 2 * product(s[0]) * double(s[1][0]);
}

// One multiplication and one addition of every weight at every place of
// `places`, which is the output (of a transposed convolution the input).
double convolution(const Sizes& places, const Sizes& weight) {
  if (places.size() < 3 || weight.size() != places.size()) return 0;
  return 2 * double(places[0]) * product(places, 2) * product(weight);
}

// A convolution whose input and result have equal numbers of channels looks
// like a transposed one. That one's result grows; the other's by one at most,
// unless it is padded with more than half of its filter.
bool transposes(const Sizes& in, const Sizes& weight, const Sizes& out) {
  if (out[1] != weight[0]) return true;
  bool grows = false;
  for (size_t i = 2; i < in.size(); ++i) grows = grows || out[i] > in[i] + 1;
  return in[1] == weight[0] && grows;
}

// The tensors are input, weight, perhaps bias, and result. The result of a
// transposed convolution has as many channels as the weight's second dimension,
// and its filters are applied at the places of the input.
double convolution_forward(const Shapes& s) {
  if (s.size() < 3) return 0;
  const Sizes &in = s[0], &weight = s[1], &out = s[s.size() - 1];
  if (in.size() != weight.size() || out.size() != in.size()) return 0;
  return convolution(transposes(in, weight, out) ? in : out, weight);
}

// The tensors are grad_output, input, weight, then the wanted ones of the
// gradients of input, weight and bias.
double convolution_backward(const Shapes& s) {
  if (s.size() < 4) return 0;
  const Sizes &grad = s[0], &in = s[1], &weight = s[2];
  if (grad.size() != in.size() || in.size() != weight.size()) return 0;
  const bool transposed = transposes(in, weight, grad);
  double flops = 0;
  for (size_t i = 3; i < s.size(); ++i)
    if (s.writes(i) && s[i].size() > 1)
      flops += convolution(transposed ? in : grad, weight);
  return flops;
}

// query [.., q, e], key [.., k, e], value [.., k, v].
double attention(const Sizes& q, const Sizes& k, const Sizes& v,
                 double qk_products, double v_products) {
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return 0;
  const double scores =
      double(q[0]) * double(q[1]) * double(q[2]) * double(k[2]);
  return 2 * scores * (qk_products * double(q[3]) + v_products * double(v[3]));
}

// x is [steps, batch, in], the weights are [4 h, in] and [4 h, h]. Backward
// computes two gradients of each product.
double lstm(const Shapes& s, size_t products) {
  if (!s.rank(0, 3) || !s.rank(1, 2) || !s.rank(2, 2)) return 0;
  return 2 * double(products) * double(s[0][0]) * double(s[0][1]) *
         (product(s[1]) + product(s[2]));
}

// Most tasks are none of these, and should not cost the reading of their
// shapes.
bool may_multiply(std::string_view name) {
  for (const std::string_view part :
       {"mm", "mv", "dot", "linear", "conv", "mkldnn", "attention"})
    if (name.find(part) != name.npos) return true;
  return false;
}

bool is_lstm(std::string_view name) {
  return name.starts_with("mkldnn_rnn_layer");
}

// Products of narrow types whose results are wider.
bool multiplies_narrow(std::string_view name) {
  return name == "_int_mm" || name == "_scaled_mm";
}

double flops_of(std::string_view name, const Shapes& s) {
  if (name == "mm" || multiplies_narrow(name)) return by_matrix(s, 0, 2);
  if (name == "addmm" || name == "_addmm_activation" || name == "addmm_")
    return by_matrix(s, 1, 2);
  if (name == "bmm") return by_matrix(s, 0, 3);
  if (name == "baddbmm" || name == "addbmm" || name == "baddbmm_")
    return by_matrix(s, 1, 3);
  if (name == "mv") return by_vector(s, 0, 2);
  if (name == "addmv" || name == "addmv_") return by_vector(s, 1, 2);
  if (name == "dot" || name == "vdot") return by_vector(s, 0, 1);
  if (name == "linear" || name == "mkldnn_linear") return linear(s);
  if (name.find("conv") != name.npos)
    return name.find("backward") != name.npos ? convolution_backward(s)
                                              : convolution_forward(s);
  if (is_lstm(name) && s.size() > 2)
    return name.find("backward") != name.npos ? lstm(s, 2) : lstm(s, 1);
  if (!name.starts_with("_scaled_dot_product") || s.size() < 4) return 0;
  if (name.find("backward") == name.npos)
    return attention(s[0], s[1], s[2], 1, 1);
  // As torch counts it: the scores again, and two gradients of each product.
  return attention(s[1], s[2], s[3], 3, 2);
}

Arithmetic arithmetic_of(std::string_view name) {
  if (is_lstm(name)) return Arithmetic::kRecurrence;
  return name.find("conv") == name.npos ? Arithmetic::kProducts
                                        : Arithmetic::kConvolution;
}

// Bytes of a view; elements that it repeats (by a stride of 0) count once.
double bytes_of(const npu_view& view, const uint64_t* words) {
  if (is_range(view)) return double(words[view.ndim]) * view.itemsize;
  double bytes = view.itemsize;
  for (uint32_t i = 0; i < view.ndim; ++i)
    if (view.strides[i] != 0 || view.sizes[i] == 0)
      bytes *= double(view.sizes[i]);
  return bytes;
}

}  // namespace

TaskWork work_of_task(const npu_kernel& kernel, const uint64_t* words) {
  TaskWork work;
  int widest = 0;
  const bool has_out = gives_result_in_out(kernel.name);
  for (uint32_t i = 0; i < kernel.n_views; ++i) {
    const npu_view& view = kernel.views[i];
    const double bytes = bytes_of(view, words);
    const bool writes = view.access & NPU_WRITE;
    work.bytes += bytes * ((view.access & NPU_READ) && !(writes && has_out));
    work.bytes += bytes * writes;
    // The first view that is written says in which type the arithmetic is done.
    if (writes && !widest) widest = view.itemsize;
  }
  if (widest) work.itemsize = widest;
  const std::string_view name = base_name(kernel.name);
  if (name == "_sleep") {
    work.kind = WorkKind::kSleep;
    work.sleep_ns = words[0];
    return work;
  }
  if (!may_multiply(name)) return work;
  const Shapes shapes(kernel, words);
  work.flops = flops_of(name, shapes);
  if (multiplies_narrow(name)) work.itemsize = kernel.views[0].itemsize;
  work.arithmetic = arithmetic_of(name);
  return work;
}

}  // namespace npu
