// Graphs on the calling thread's device and stream.
#pragma once

#include "csrc/graph/graph.h"

namespace npu {

// The calling thread's stream is the one that is captured, or replayed on.
// They throw CaptureError, and the error of a stream that has failed.
void begin_capture(Graph& graph, uint64_t pool, CaptureMode mode);
void end_capture(Graph& graph);
void replay(Graph& graph);

}  // namespace npu
