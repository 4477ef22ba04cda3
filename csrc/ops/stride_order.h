// In which order the dimensions of a tensor lie in memory, whatever its sizes.
#pragma once

#include <ATen/DimVector.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace npu {

// Dimensions, the outermost first.
using StrideOrder = std::vector<int64_t>;

StrideOrder stride_order(c10::IntArrayRef sizes, c10::IntArrayRef strides);

// The strides of a tensor without gaps whose dimensions lie in that order.
at::DimVector dense_strides(c10::IntArrayRef sizes, const StrideOrder& order);

}  // namespace npu
