// Flags of kernels that the engine sets for itself, and drivers need not know.
#pragma once

#include <cstdint>

namespace npu {

// It may wait for other processes, which wait for what this one does next.
inline constexpr uint32_t kWaitsForPeers = uint32_t{1} << 31;
// It is a KernelWithDrop (taskqueue/program.h).
inline constexpr uint32_t kHasDrop = uint32_t{1} << 28;

}  // namespace npu
