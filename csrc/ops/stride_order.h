// The order of a tensor's dimensions in memory, which does not depend on its
// sizes.
#pragma once

#include <ATen/DimVector.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace npu {

// The dimensions, the outermost first.
using StrideOrder = std::vector<int64_t>;

StrideOrder stride_order(c10::IntArrayRef sizes, c10::IntArrayRef strides);

// The strides of a tensor without gaps whose dimensions are in that order in
// memory.
at::DimVector dense_strides(c10::IntArrayRef sizes, const StrideOrder& order);

}  // namespace npu
