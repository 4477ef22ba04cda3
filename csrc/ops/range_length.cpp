#include "csrc/ops/range_length.h"

#include <cmath>

namespace npu {

std::optional<int64_t> range_length(const at::Scalar& start,
                                    const at::Scalar& end,
                                    const at::Scalar& step,
                                    at::ScalarType type) {
  double steps;
  if (type == at::kLong) {
    if (!start.isIntegral(false) || !end.isIntegral(false) ||
        !step.isIntegral(false))
      return std::nullopt;
    const int64_t by = step.toLong();
    const __int128 way = __int128(end.toLong()) - start.toLong();
    if (by == 0 || (way > 0) != (by > 0)) return std::nullopt;
    steps = double((way + by - (by > 0 ? 1 : -1)) / by);
  } else {
    if (type == at::kBool || c10::isComplexType(type)) return std::nullopt;
    if (start.isComplex() || end.isComplex() || step.isComplex())
      return std::nullopt;
    steps = std::ceil((end.toDouble() - start.toDouble()) / step.toDouble());
  }
  constexpr double kMost = double(int64_t(1) << 48);
  if (!(steps > 0 && steps < kMost)) return std::nullopt;
  return int64_t(steps);
}

}  // namespace npu
