// How a number differs from others for the checks that kernels make of their
// arguments.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace npu {

uint8_t unusual_value_class(double value);

// A kernel refuses some numbers: an exponent that is negative, a divisor that
// is zero, one that its tensor's type cannot hold. Two numbers of one class
// are refused together, whatever the kernel. Nearly all numbers that programs
// compute with are of two classes, so a learning rate that changes from step
// to step is a value and no part of its call's identity.
inline uint8_t value_class(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude > 0 && magnitude <= 127) [[likely]]
    return value < 0;
  return unusual_value_class(value);
}

}  // namespace npu
