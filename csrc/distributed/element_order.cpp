// Collectives whose inputs and outputs are different tensors, which may have
// different memory formats.
#include <ATen/ops/empty.h>

#include "csrc/distributed/group.h"

namespace npu {
namespace {

// The sizes and strides of a tensor, where its elements are not in the order of
// their indices; else empty.
struct Layout {
  std::vector<int64_t> sizes, strides;

  explicit Layout(const at::Tensor& t) {
    if (t.is_contiguous()) return;
    sizes = t.sizes().vec();
    strides = t.strides().vec();
  }
  bool ordered() const { return sizes.empty(); }
  // The tensor, over its memory as a tensor of one dimension.
  at::Tensor of(const at::Tensor& memory) const {
    return memory.as_strided(sizes, strides);
  }
};

std::vector<Layout> layouts(const Tensors& tensors) {
  std::vector<Layout> all;
  for (const at::Tensor& t : tensors) all.emplace_back(t);
  return all;
}

bool ordered(const std::vector<Layout>& all) {
  for (const Layout& layout : all)
    if (!layout.ordered()) return false;
  return true;
}

}  // namespace

void HcclGroup::move_by_index(Plan& plan) {
  auto in = layouts(plan.reads), out = layouts(plan.writes);
  if (ordered(in) && ordered(out)) return;
  plan.run = [in = std::move(in), out = std::move(out),
              run = std::move(plan.run)](Transport& t, const Collective& call,
                                         const Tensors& reads,
                                         const Tensors& writes) {
    Tensors from = reads, to = writes;
    for (size_t i = 0; i < in.size(); ++i)
      if (!in[i].ordered())
        from[i] = in[i].of(reads[i]).contiguous().view({-1});
    for (size_t i = 0; i < out.size(); ++i)
      if (!out[i].ordered()) to[i] = at::empty_like(writes[i]);
    run(t, call, from, to);
    for (size_t i = 0; i < out.size(); ++i)
      if (!out[i].ordered())
        out[i].of(writes[i]).copy_(to[i].view(out[i].sizes));
  };
}

}  // namespace npu
