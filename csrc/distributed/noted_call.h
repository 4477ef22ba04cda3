// What the flight recorder notes of a call: once where it is launched, or at
// each replay of a graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "csrc/distributed/core/collectives.h"

namespace npu {

class NotedCall {
 public:
  // `call` without what is said of tensors, which outlive this object until
  // keep(). `peers`: of a send or recv, those of `reads` and then of `writes`.
  NotedCall(const CollectiveCall& call, const std::vector<at::Tensor>& reads,
            const std::vector<at::Tensor>& writes,
            const std::vector<int>& peers);

  // Keeps the sizes of the tensors, which may go from now on.
  void keep();
  LoggedCollective log(uint64_t seq, uint64_t now);

 private:
  void add(const std::vector<at::Tensor>& list, bool output, const int* peers);

  CollectiveCall call_;
  // Each tensor takes a word at least.
  std::array<TensorShape, kShapeWords> shapes_;
  std::vector<int64_t> kept_;
};

}  // namespace npu
