// One unit of a stream's queue: plain data, five cache lines with its slot.
#pragma once

#include <cstdint>

#include "csrc/driver/driver.h"

namespace npu {

class Stream;

enum class TaskKind : uint8_t {
  kKernel,     // kernel->run(words)
  kWait,       // words: Stream*, number: hold this stream until it is reached
  kTimestamp,  // words: TimeCell*: note the time
  kProgram,    // words: Program*, then its own
};

struct Task {
  static constexpr uint32_t kInlineWords = 35;

  const npu_kernel* kernel;
  uint64_t stamp;  // ticks() at the claim when this task is sampled, else 0
  uint32_t site;   // the call stack that launched it; 0: not known
  uint16_t n_words;
  TaskKind kind;
  bool spilled;           // inline_words[0] is the address of an Arena chunk
  uint32_t forward_site;  // of a backward task: its forward call's; else 0
  uint32_t launch_ticks;  // from stamp to commit, when this task is sampled
  uint64_t inline_words[kInlineWords];

  uint64_t* words() {
    return spilled ? reinterpret_cast<uint64_t*>(inline_words[0])
                   : inline_words;
  }
  const uint64_t* words() const { return const_cast<Task*>(this)->words(); }
};

}  // namespace npu
