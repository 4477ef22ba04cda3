// Graphs on the calling thread's device and stream.
#pragma once

#include "csrc/graph/graph.h"

namespace npu {

// These capture the calling thread's current stream, or replay on it. They
// throw CaptureError, or the error of a stream that has failed.
void begin_capture(Graph& graph, uint64_t pool, CaptureMode mode);
void end_capture(Graph& graph);
void replay(Graph& graph);

}  // namespace npu
