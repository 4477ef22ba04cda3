// What a kernel made of a call, beside what was inferred for it.
#pragma once

#include <vector>

#include "csrc/ops/infer.h"
#include "csrc/ops/stride_order.h"
#include "csrc/ops/trial.h"

namespace npu {

struct Judgement {
  Verdict verdict;
  // How the results lie where the shapes were inferred rightly and the strides
  // were not. For new results, then for those in place; an empty one is as
  // inferred.
  std::vector<StrideOrder> orders;
};

Judgement judge(const Inferred& inferred, const Inferred& actual);

// Lays the results out as a call of another size was judged to.
void lay_out(Inferred& inferred, const std::vector<StrideOrder>& orders);

}  // namespace npu
