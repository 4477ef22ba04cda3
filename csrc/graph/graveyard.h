// Graphs that are no longer wanted while a queued replay may still run them.
#pragma once

#include <memory>

#include "csrc/graph/body.h"

namespace npu {

// Counts the graphs of a pool; the last one to leave frees its memory.
void hold_pool(int device, uint64_t pool);
void leave_pool(int device, uint64_t pool);

// Destroys `body`, and leaves its pool, once everything that its device has
// been given so far is done: then nothing reads its results either.
void bury(std::unique_ptr<Body> body);

// Destroys what may be destroyed by now. Does not wait.
void collect_graphs();

}  // namespace npu
