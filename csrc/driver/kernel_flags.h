// Flags of kernels that the engine sets for itself, and drivers need not know.
#pragma once

#include <cstdint>

namespace npu {

// It may wait for other processes, which wait for what this one does next.
inline constexpr uint32_t kWaitsForPeers = uint32_t{1} << 31;
// It may have an OpenMP team, which belongs to the thread that made it.
inline constexpr uint32_t kHasTeam = uint32_t{1} << 30;
// Its views need not be all that it touches.
inline constexpr uint32_t kTouchesMore = uint32_t{1} << 29;
// It is a KernelWithDrop (taskqueue/program.h).
inline constexpr uint32_t kHasDrop = uint32_t{1} << 28;

}  // namespace npu
