// Which nodes of a graph have to wait for which, by the memory that they use.
#pragma once

#include <cstdint>
#include <vector>

namespace npu {

class Body;

// Per node, in the order of the capture, the later nodes that must come after
// it. What follows from two others is left out.
using Edges = std::vector<std::vector<uint32_t>>;

// A node waits for an earlier one where one of the two writes a byte that the
// other reads or writes. One whose views are not all that it touches waits for
// all earlier ones, and later ones wait for it.
//
// `body`: of one stream and without groups, whose arguments may be replaced.
Edges dependencies(const Body& body);

}  // namespace npu
