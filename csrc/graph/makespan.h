// How long a graph takes on several cores. Pure: it is told how long each node
// takes.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/graph/dependencies.h"

namespace npu {

// What it costs to hand a node to another core: two cache lines, and what the
// node reads. bench/graphs.py.
inline constexpr uint64_t kHandOverNs = 400;

// Per node, how long it takes until all that comes after it is done at the
// earliest: the node and the longest path behind it.
std::vector<uint64_t> urgency(const Edges& after,
                              const std::vector<uint64_t>& ns);

// Nanoseconds until all nodes are done, where each core takes the most urgent
// node that is ready.
uint64_t makespan(const Edges& after, const std::vector<uint64_t>& ns,
                  int cores);

}  // namespace npu
