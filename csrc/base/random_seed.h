// What one random task draws from. It is fixed on the caller's thread.
#pragma once

#include <cstdint>

namespace npu {

struct RandomSeed {
  uint64_t seed, offset;

  // The first draw after seeding gives what the cpu gives for that seed. Of a
  // seed with more than 32 bits the cpu takes no notice of the others.
  bool draws_as_cpu() const { return !offset && seed <= UINT32_MAX; }
};

}  // namespace npu
