// Reductions in which each rank reduces a part of the elements.
#pragma once

#include <algorithm>
#include <vector>

#include "csrc/distributed/reduction.h"
#include "csrc/distributed/transport.h"

namespace npu {

// Up to this many bytes ranks send each other everything, and each reduces all
// of it: one exchange instead of two.
inline constexpr size_t kWholeExchange = 64 << 10;

inline Bytes bytes_of(const at::Tensor& t) {
  return {t.data_ptr(), t.nbytes()};
}

// Elements [from, to) of a tensor of one dimension, as far as it has them.
inline at::Tensor piece(const at::Tensor& t, int64_t from, int64_t to) {
  from = std::min(from, t.numel());
  return t.slice(0, from, std::min(to, t.numel()));
}

// A reduction as one rank sees it. Each rank is sent the other ranks' values of
// its part of the elements, and reduces that part.
struct Reduced {
  const Reduction& reduction;
  bool logical;                  // the elements are truth values
  std::vector<at::Tensor> sent;  // by rank: my values of the part it reduces
  at::Tensor kept;               // the result of the part that I reduce
  // By rank: where the part that it has reduced goes. Empty: nobody gets the
  // others' parts.
  std::vector<at::Tensor> returned;
};

// Exchanges the parts and reduces them; throws as Transport::exchange() does.
// All ranks must have parts of the same sizes; where they have not, it throws
// on each.
void reduce_parts(Transport& t, const Collective& call, const Reduced& r);

}  // namespace npu
