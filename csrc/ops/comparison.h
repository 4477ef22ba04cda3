// Compares what a kernel made of a call with what was inferred for it.
#pragma once

#include <vector>

#include "csrc/ops/infer.h"
#include "csrc/ops/stride_order.h"
#include "csrc/ops/trial.h"

namespace npu {

struct Comparison {
  Verdict verdict;
  // The order of the results' dimensions in memory, where the shapes were
  // inferred correctly and the strides were not: of new results, then of those
  // in place. An empty order means that the strides are as inferred.
  std::vector<StrideOrder> orders;
};

// `smaller`: `actual` is of a call of the same identity with other sizes. Then
// dtypes, numbers of dimensions and their order are compared.
Comparison compare(const Inferred& inferred, const Inferred& actual,
                   bool smaller = false);

// Corrects inferred strides by the comparison of a call with other sizes.
void lay_out(Inferred& inferred, const std::vector<StrideOrder>& orders);

}  // namespace npu
