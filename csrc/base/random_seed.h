// What one random task draws from. It is fixed on the caller's thread.
#pragma once

#include <cstdint>

namespace npu {

struct RandomSeed {
  uint64_t seed, offset;
};

}  // namespace npu
