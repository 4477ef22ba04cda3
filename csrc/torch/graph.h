// Graphs on the calling thread's streams.
#pragma once

#include "csrc/graph/graph.h"

namespace npu {

// These capture the calling thread's current stream. They throw CaptureError,
// or the error of a stream that has failed.
void begin_capture(Graph& graph, uint64_t pool, CaptureMode mode,
                   bool check_inputs);
void end_capture(Graph& graph);
// Replays on the current stream of the graph's device, whichever device is
// current. Throws as those do.
void replay(Graph& graph);

}  // namespace npu
