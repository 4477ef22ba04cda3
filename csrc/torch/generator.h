// Random numbers that do not depend on when a queued task runs.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

#include "csrc/base/random_seed.h"

namespace npu {

// The default generator of a device.
const at::Generator& default_generator(int device);
at::Generator make_generator(int device);

// Reserves the next draw of `generator`, or of the device's default one. Any
// thread. Throws for a generator of another device type.
RandomSeed reserve(const std::optional<at::Generator>& generator, int device);

// A CPU generator seeded for one task. The next call on the same thread reuses
// it.
at::Generator seeded_generator(RandomSeed seed);

}  // namespace npu
