// Classes of numbers between which the checks that kernels make of their
// arguments may differ.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace npu {

uint8_t unusual_value_class(double value);

// Kernels refuse some numbers: a negative exponent, a divisor of zero, a number
// that the tensor's type cannot hold. Every kernel refuses either both or
// neither of two numbers of one class. Nearly all numbers that programs compute
// with are in two classes, so a learning rate that changes from step to step
// does not change its call's key.
inline uint8_t value_class(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude > 0 && magnitude <= 127) [[likely]]
    return value < 0;
  return unusual_value_class(value);
}

}  // namespace npu
