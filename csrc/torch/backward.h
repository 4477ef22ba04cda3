// What a backward leaves behind.
#pragma once

namespace npu {

// Frees the gradients that a backward which has failed on this thread would
// have used next. torch keeps them in the thread's queue. Nothing happens
// inside of another backward, whose gradients are in the same queue.
void drop_unfinished_backward();

}  // namespace npu
