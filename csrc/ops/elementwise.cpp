#include "csrc/ops/elementwise.h"

#include <algorithm>

#include "csrc/ops/shapes.h"
#include "csrc/ops/stack_map.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

// The shape of all arguments of a call together.
struct Together {
  at::DimVector sizes;
  bool usual = true;  // all have a new tensor's strides, and have elements

  void add(const at::Tensor& t) {
    usual =
        usual && t.numel() > 0 && has_default_strides(*t.unsafeGetTensorImpl());
    const at::IntArrayRef more = t.sizes();
    if (first_) sizes = more;
    first_ = false;
    if (at::IntArrayRef(sizes) == more) return;
    if (more.size() > sizes.size())
      sizes.insert(sizes.begin(), more.size() - sizes.size(), 1);
    for (size_t i = 1; i <= more.size(); ++i) {
      int64_t& size = sizes[sizes.size() - i];
      const int64_t other = more[more.size() - i];
      usual = usual && (size == other || size == 1 || other == 1);
      size = std::max(size, other);
    }
  }

 private:
  bool first_ = true;
};

}  // namespace

std::optional<std::vector<OutSpec>> elementwise_results(
    const Op& op, at::ArrayRef<c10::IValue> stack,
    const std::vector<OutSpec>& known) {
  const Op::Schema& schema = op.schema();
  Together all;
  bool writes_others = false;  // an out=, which the call may resize
  for_each_tensor(schema, stack, [&](const at::Tensor& t, size_t argument) {
    writes_others = writes_others || (argument > 0 && schema.writes[argument]);
    all.add(t);
  });
  if (!all.usual || writes_others) return std::nullopt;
  if (schema.writes[0] &&
      stack[0].toTensor().sizes() != at::IntArrayRef(all.sizes))
    return std::nullopt;
  // The results of such arguments have a new tensor's strides too, however the
  // arguments are expanded.
  Shapes results;
  results.outs.reserve(known.size());
  for (const OutSpec& like : known)
    results.add_contiguous(all.sizes, like.dtype.toScalarType());
  return std::move(results.outs);
}

}  // namespace npu
