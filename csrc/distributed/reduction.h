// What a reduction does to the elements, in the order of the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace npu {

struct Reduction {
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  double factor = 1;  // of PREMUL_SUM
};

// Throws for what no rank can do: AVG of bool, MAX of complex...
void check_reduction(const char* call, const Reduction& reduction,
                     at::ScalarType dtype);

// Reads the op and, waiting for the device where it is a tensor, its factor.
Reduction reduction_of(const c10d::ReduceOp& op);

// The type that a reduction computes `dtype` as, of the same size or half: bool
// as bytes, complex numbers as pairs.
at::ScalarType reduced_as(at::ScalarType dtype);

// `part` as the others are to get it: multiplied, for PREMUL_SUM.
at::Tensor prepared(const Reduction& reduction, const at::Tensor& part);

// out = parts[0] op parts[1] ...; the parts are prepared, of one dimension, and
// may be `out`. Half precision is accumulated in float. `logical`: of bools.
void combine(const Reduction& reduction, const std::vector<at::Tensor>& parts,
             at::Tensor out, bool logical);

}  // namespace npu
