// Replaces the arguments of a group of captured tasks.
#pragma once

#include "csrc/graph/graph.h"

namespace npu {

// Until end_update(), tasks that are submitted to `stream` do not run: their
// arguments become those of the group's tasks. Throws when `stream` captures,
// is the one that the group was captured on, or has an update under way, or
// where the group is not of the graph's capture. The graph may go before
// end_update(), which then throws.
void begin_update(Stream& stream, Graph& graph, std::shared_ptr<Group> group);

// Puts the arguments into the group when `stream` reaches this point: a replay
// that reaches the group later uses all of them, and an earlier one none.
// Results stay where the capture put them. Throws, and changes nothing, when
// the tasks were not the group's operators on the same shapes and dtypes.
void end_update(Stream& stream);

}  // namespace npu
