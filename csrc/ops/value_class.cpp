#include "csrc/ops/value_class.h"

#include <cfloat>

namespace npu {

uint8_t unusual_value_class(double value) {
  // The ends of the ranges of types, for either sign: integers of 8, 16, 32 and
  // 64 bits, half, bfloat16 and float.
  constexpr double kEnds[] = {
      127.0,          128.0,   255.0,        32767.0,      32768.0,
      65504.0,        65535.0, 2147483647.0, 2147483648.0, 4294967295.0,
      0x1.fffffep+62, 0x1p+63, 0x1.fep+127,  FLT_MAX,      DBL_MAX};
  if (value == 0) return 2;
  if (std::isnan(value)) return 4;
  uint8_t c = 6;
  for (const double end : kEnds) {
    if (std::fabs(value) <= end) break;
    c += 2;
  }
  return uint8_t(c + (value < 0));
}

}  // namespace npu
