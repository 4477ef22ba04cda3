#include "csrc/host/kernel_cut.h"

#include <ATen/DimVector.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "csrc/host/denormals.h"
#include "csrc/host/kernel_cost.h"
#include "csrc/host/kernel_size.h"
#include "csrc/host/kernel_threads.h"
#include "csrc/host/piece_mode.h"
#include "csrc/placement/shared_loop.h"

namespace npu {
namespace {

// Where pieces begin, a multiple of this: vectors then end there, too.
constexpr int64_t kAlign = 16;
// The same of elements in memory, whatever their dtype.
constexpr int64_t kAlignElements = 64;
constexpr int64_t kMostPieces = 64;
// A dimension from so long on is cut rather than a longer one behind it.
constexpr int64_t kLong = 4 * kAlign;

// The dimension of the view that is cut; -1: none.
int dimension(const Cut& cut, const npu_view& view) {
  const int d = cut.counted == Cut::Dim::kFromLast
                    ? int(view.ndim) - int(cut.dim)
                    : int(cut.dim);
  if (d < 0 || d >= int(view.ndim)) return -1;
  return !cut.length || view.sizes[d] == cut.length ? d : -1;
}

int64_t begin_of(int64_t length, int piece, int pieces) {
  const int64_t begin = length * piece / pieces;
  return length < kAlign * pieces || piece == pieces ? begin
                                                     : begin / kAlign * kAlign;
}

at::IntArrayRef sizes_of(const npu_view& view) {
  return {view.sizes, view.ndim};
}

// Of lists of `n` tensors, one after the other. Each has the same shapes, since
// a tensor that is broadcast has other dimensions.
Cut cut_of_lists(at::ArrayRef<npu_view> views, size_t n) {
  if (!n || views.size() % n) return {};
  for (size_t i = 0; i < views.size(); ++i)
    if (!views[i].ndim || sizes_of(views[i]) != sizes_of(views[i % n]))
      return {};
  return {.counted = Cut::Dim::kFromFirst};
}

// Of a fused optimizer's step, whose kernel takes the elements of each list as
// they lie in memory. Each piece reads the numbers whole: steps, a scale.
bool is_number(const npu_view& view) {
  return elements(view) == 1 && !(view.access & NPU_WRITE);
}

Cut cut_of_step(at::ArrayRef<npu_view> views) {
  for (const npu_view& view : views) {
    if (is_number(view)) continue;
    int64_t span = 1;
    for (uint32_t d = 0; d < view.ndim; ++d)
      span += (view.sizes[d] - 1) * view.strides[d];
    if (!view.ndim || (elements(view) && span != elements(view))) return {};
  }
  return {.counted = Cut::Dim::kElements};
}

// Of tensors that lie alike in memory, where the place of an element there is
// all that matters.
Cut cut_of_memory(at::ArrayRef<npu_view> views) {
  for (const npu_view& view : views)
    if (sizes_of(view) != sizes_of(views[0]) ||
        !std::equal(view.strides, view.strides + view.ndim, views[0].strides))
      return {};
  return cut_of_step(views);
}

// Of a kernel that computes each element for itself, or all those of the last
// `kept` dimensions together. The latter takes its results to be dense, which
// pieces of the first dimension are that has more than one element.
Cut cut_of_elements(at::ArrayRef<npu_view> views, int kept) {
  const int64_t enough = kept ? 2 : kLong;
  const npu_view& all = *std::max_element(
      views.begin(), views.end(), [](const npu_view& a, const npu_view& b) {
        return elements(a) < elements(b);
      });
  Cut cut{.counted = Cut::Dim::kFromLast};
  for (int d = 0; d < int(all.ndim) - kept && cut.length < enough; ++d)
    if (all.sizes[d] > cut.length) {
      cut.dim = all.ndim - uint32_t(d);
      cut.length = all.sizes[d];
    }
  if (cut.length < 2) return {};
  for (const npu_view& view : views) {
    const int d = int(view.ndim) - int(cut.dim);
    if (view.access & NPU_WRITE && dimension(cut, view) < 0) return {};
    if (d >= 0 && view.sizes[d] != cut.length && view.sizes[d] != 1) return {};
  }
  return cut;
}

// Attention of [batch, heads, length, width]: the batch is cut, or the heads.
Cut cut_of_attention(at::ArrayRef<npu_view> views, bool has_mask) {
  if (has_mask) return {};
  const int64_t batch = views[0].sizes[0], heads = views[0].sizes[1];
  const bool whole = batch % 2 == 0 || (heads % 2 && batch >= heads);
  const Cut cut{.counted = Cut::Dim::kFromFirst,
                .dim = whole ? 0u : 1u,
                .length = whole ? batch : heads};
  for (const npu_view& view : views)
    if (dimension(cut, view) < 0) return {};
  return cut;
}

// Makes it a view of a piece's elements, of the same rank. Returns how many
// bytes behind the beginning of the tensor it begins.
uint64_t cut_elements(npu_view& view, int piece, int pieces,
                      std::vector<at::DimVector>& numbers) {
  const int64_t all = elements(view);
  const auto begin_of = [&](int piece) {
    return piece == pieces
               ? all
               : all * piece / pieces / kAlignElements * kAlignElements;
  };
  const int64_t begin = begin_of(piece);
  at::DimVector& sizes = numbers.emplace_back(view.ndim, 1);
  sizes.back() = begin_of(piece + 1) - begin;
  view.sizes = sizes.data();
  view.strides = numbers.emplace_back(view.ndim, 1).data();
  return uint64_t(begin * view.itemsize);
}

int dims_from(const c10::IValue& dim, const c10::IValue& tensor) {
  const int64_t ndim = tensor.toTensor().dim();
  return int(ndim - at::maybe_wrap_dim(dim.toInt(), ndim));
}

}  // namespace

Cut cut_of(const KernelKind& kind, at::ArrayRef<c10::IValue> arguments,
           at::ArrayRef<npu_view> views) {
  const std::string_view name = kind.name;
  const auto ns = kernel_ns(name, kind.element_wise, views);
  if (!ns || *ns < kPieceNs || kind.is_random) return {};
  Cut cut;
  if (kind.element_wise || name == "aten::relu" || name == "aten::relu_")
    cut = cut_of_elements(views, 0);
  else if (name == "aten::native_dropout_backward")
    cut = cut_of_memory(views);
  else if (is_fused_step(name))
    cut = cut_of_step(views);
  else if (kind.on_lists)
    cut = cut_of_lists(views, arguments[0].toListRef().size());
  else if (name == "aten::_softmax" || name == "aten::_log_softmax")
    cut = cut_of_elements(views, dims_from(arguments[1], arguments[0]));
  else if (name == "aten::_softmax_backward_data" ||
           name == "aten::_log_softmax_backward_data")
    cut = cut_of_elements(views, dims_from(arguments[2], arguments[0]));
  else if (name == "aten::native_layer_norm")
    cut = cut_of_elements(views, int(arguments[1].toListRef().size()));
  else if (name == kAttention)
    cut = cut_of_attention(views, !arguments[5].isNone());
  else if (name == kAttentionBackward)
    cut = cut_of_attention(views, !arguments[8].isNone());
  cut.wakes = *ns > kWakingNs;
  return cut;
}

int pieces_of(const Cut& cut) {
  return int(std::min<int64_t>({threads_of_large_kernels(), kMostPieces,
                                cut.length ? cut.length : kMostPieces}));
}

void cut_views(const Cut& cut, int piece, int pieces,
               std::vector<npu_view>& views, std::vector<uint64_t>& offsets,
               std::vector<at::DimVector>& sizes) {
  offsets.assign(views.size(), 0);
  sizes.reserve(2 * views.size());  // views point into it
  for (size_t i = 0; i < views.size(); ++i) {
    npu_view& view = views[i];
    if (cut.counted == Cut::Dim::kElements) {
      if (!is_number(view))
        offsets[i] = cut_elements(view, piece, pieces, sizes);
      continue;
    }
    at::DimVector& own = sizes.emplace_back(view.sizes, view.sizes + view.ndim);
    if (const int d = dimension(cut, view); d >= 0) {
      const int64_t begin = begin_of(view.sizes[d], piece, pieces);
      own[size_t(d)] = begin_of(view.sizes[d], piece + 1, pieces) - begin;
      offsets[i] = uint64_t(begin * view.strides[d] * view.itemsize);
    }
    view.sizes = own.data();
  }
}

void run_pieces(int pieces, bool wakes, c10::function_ref<void(int)> run) {
  struct Task {
    const c10::function_ref<void(int)> run;
    const bool flushes_denormals;
  } task{run, flushes_denormals()};
  run_shared(
      threads_of_large_kernels(), pieces,
      [](void* context, int piece) {
        const Task& task = *static_cast<const Task*>(context);
        const PieceMode mode(task.flushes_denormals);
        task.run(piece);
      },
      &task, wakes);
}

}  // namespace npu
