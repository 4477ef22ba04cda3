// How many numbers arange() makes.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace npu {

// Of numbers from `start` to before `end`: exactly for integers, else as for
// floats. Empty: the function does not know, or there is no such range.
std::optional<int64_t> range_length(const at::Scalar& start,
                                    const at::Scalar& end,
                                    const at::Scalar& step, at::ScalarType);

}  // namespace npu
