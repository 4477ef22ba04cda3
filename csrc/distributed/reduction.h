// Reduces elements, in the order of the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace npu {

struct Reduction {
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  double factor = 1;  // for PREMUL_SUM
};

// Throws for a reduction that does not exist, such as AVG of bool or MAX of
// complex numbers.
void check_reduction(const char* call, const Reduction& reduction,
                     at::ScalarType dtype);

// Reads the op and, waiting for the device where it is a tensor, its factor.
Reduction reduction_of(const c10d::ReduceOp& op);

// The type in which a reduction computes `dtype`: bool as bytes, and complex
// numbers as pairs of numbers of half the size.
at::ScalarType reduced_as(at::ScalarType dtype);

// `part` as it is sent to the other ranks: multiplied, for PREMUL_SUM.
at::Tensor prepared(const Reduction& reduction, const at::Tensor& part);

// out = parts[0] op parts[1] ... The parts are prepared and have one dimension;
// one of them may be `out`. Half precision is accumulated in float. `logical`:
// the elements are bools.
void combine(const Reduction& reduction, const std::vector<at::Tensor>& parts,
             at::Tensor out, bool logical);

}  // namespace npu
