// Replacing the arguments of a group of captured tasks.
#pragma once

#include "csrc/graph/graph.h"

namespace npu {

// Until end_update(), what is submitted to `stream` does not run: it becomes
// the arguments of the group's tasks. Throws when `stream` captures, or is the
// one that the group was captured on, or an update is under way on it.
void begin_update(Stream& stream, Graph& graph, Group& group);

// Puts the arguments into the group when `stream` comes to this point: a replay
// that reaches the group later uses all of them, another one none. New results
// stay where the capture put them. Throws, and changes nothing, when these were
// not the group's operators on the same shapes and dtypes.
void end_update(Stream& stream);

}  // namespace npu
