#include "csrc/distributed/reduce_parts.h"

#include <ATen/ops/empty.h>

namespace npu {
namespace {

using Tensors = std::vector<at::Tensor>;

// Receives the parts of all ranks first and reduces them then: this takes the
// fewest messages, and is for few bytes.
void reduce_at_once(Transport& t, const Collective& call, const Reduced& r) {
  const int n = t.size(), me = t.rank();
  const at::Tensor rows = at::empty({n, r.kept.numel()}, r.kept.options());
  std::vector<Bytes> out(n), in(n);
  Tensors all;
  for (int p = 0; p < n; ++p) {
    all.push_back(p == me ? r.sent[me] : rows[p]);
    out[p] = bytes_of(r.sent[p]);
    in[p] = bytes_of(all[p]);
  }
  t.exchange(call, out, in);
  if (r.kept.numel()) combine(r.reduction, all, r.kept, r.logical);
}

void reduce_in_segments(Transport& t, const Collective& call,
                        const Reduced& r) {
  using Segments = SegmentedReduction;
  const int n = t.size(), me = t.rank();
  const int64_t size = r.kept.itemsize();
  const at::Tensor room = at::empty(
      {int64_t(Segments::kHeld), n, int64_t(Segments::kSegment) / size},
      r.kept.options());
  Segments segments{
      {}, {}, bytes_of(r.kept), static_cast<char*>(room.data_ptr()), {}};
  for (const at::Tensor& part : r.sent) segments.send.push_back(bytes_of(part));
  for (const at::Tensor& part : r.returned)
    segments.result.push_back(bytes_of(part));
  segments.reduce = [&](size_t offset, size_t bytes, size_t held) {
    const int64_t from = offset / size, to = from + bytes / size;
    Tensors all;
    for (int p = 0; p < n; ++p)
      all.push_back(p == me ? piece(r.sent[me], from, to)
                            : piece(room[held][p], 0, to - from));
    combine(r.reduction, all, piece(r.kept, from, to), r.logical);
  };
  t.reduce(call, segments);
}

}  // namespace

void reduce_parts(Transport& t, const Collective& call, const Reduced& r) {
  // The choice depends only on sizes that all ranks know, so that all choose
  // the same.
  size_t largest = 0;
  for (const at::Tensor& part : r.sent)
    largest = std::max(largest, part.nbytes());
  if (r.returned.empty() && (t.size() == 1 || largest <= kWholeExchange))
    reduce_at_once(t, call, r);
  else
    reduce_in_segments(t, call, r);
}

}  // namespace npu
