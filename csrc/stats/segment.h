// The statistics segment of this process: where it lives.
#pragma once

#include <string>

#include "csrc/stats/layout.h"

namespace npu {

// This process's segment, made at the first call: a file of mode 0600 in
// /dev/shm/npu_dispatch-<uid>/, or private memory where that cannot be had.
// Never on a disk. Never unmapped.
Segment& segment();

// Its file, or "" when it has none.
const std::string& segment_path();

// Takes the next unused stream block; null when all are taken.
StreamBlock* claim_stream_block();

// Removes the file. Called at exit.
void remove_segment();

// After fork, in the child: a segment of its own, without a file.
void detach_segment_after_fork();

}  // namespace npu
