// Reductions of which each rank computes a part.
#pragma once

#include <algorithm>
#include <vector>

#include "csrc/distributed/reduction.h"
#include "csrc/distributed/transport.h"

namespace npu {

// Up to here two ranks send each other all of it, and both reduce: one exchange
// instead of two.
inline constexpr size_t kWholeExchange = 64 << 10;

inline Bytes bytes_of(const at::Tensor& t) {
  return {t.data_ptr(), t.nbytes()};
}

// Elements of a tensor of one dimension; fewer, or none, behind its end.
inline at::Tensor piece(const at::Tensor& t, int64_t from, int64_t to) {
  from = std::min(from, t.numel());
  return t.slice(0, from, std::min(to, t.numel()));
}

// What is reduced, by a rank that is sent the others' part of it.
struct Reduced {
  const Reduction& reduction;
  bool logical;                  // the elements are truth values
  std::vector<at::Tensor> sent;  // by rank: my part of what it reduces
  at::Tensor kept;               // what I reduce
  // By rank: where what it has reduced comes back. Or empty: it does not.
  std::vector<at::Tensor> returned;
};

// Exchanges the parts and reduces them, as Transport::exchange(). All ranks
// have parts of the same sizes, or are told that they have not.
void reduce_parts(Transport& t, const Collective& call, const Reduced& r);

}  // namespace npu
