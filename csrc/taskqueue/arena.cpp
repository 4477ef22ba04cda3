#include "csrc/taskqueue/arena.h"

#include <stdexcept>
#include <string>

namespace npu {

void throw_no_memory_for(uint32_t n_words) {
  throw std::runtime_error(
      "npu: no host memory for the " + std::to_string(n_words) +
      " words of a task's arguments; nothing was queued, and the stream can "
      "be used as before once there is memory");
}

template class BasicArena<System>;

}  // namespace npu
