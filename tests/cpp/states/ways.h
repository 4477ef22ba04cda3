// The ways in which work is launched.
#pragma once

#include "tests/cpp/states/cell.h"

namespace npu::states {

inline constexpr size_t kWays = 7;
extern const Way ways[kWays];

}  // namespace npu::states
