// One unit of a stream's queue: plain data of five cache lines. What most
// tasks need lies in the first: the head and four words, as many as an operator
// on three tensors has.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "csrc/base/align.h"
#include "csrc/driver/driver.h"

namespace npu {

class Stream;

enum class TaskKind : uint8_t {
  kKernel,  // kernel->run(words)
  kWait,    // words: Stream*, number: hold this stream until that has retired
  kTimestamp,  // words: TimeCell*: note the time
  kProgram,    // words: Program*, then its own
};

struct alignas(kCacheLine) Task {
  static constexpr uint32_t kInlineWords = 36;
  static constexpr uint32_t kMostLaunchTicks = (1u << 24) - 1;

  // Four bytes, so that one store sets them all.
  struct Marks {
    TaskKind kind : 7;
    bool spilled : 1;  // inline_words[0] is the address of an Arena chunk
    // From the stamp to commit(), where there is a stamp; at most
    // kMostLaunchTicks, which is about 5 ms.
    uint32_t launch_ticks : 24;
  };

  std::atomic<uint32_t> lap;  // the ring's
  Marks marks;
  const npu_kernel* kernel;
  uint64_t stamp;  // ticks() at the claim where the task is noted; else 0
  uint32_t site;   // the call stack that launched it; 0: not known
  uint32_t forward_site;  // of a backward task: its forward call's; else 0
  // They begin at half a line, so that a copy by 16 or 32 bytes crosses no
  // line.
  uint64_t inline_words[kInlineWords];

  uint64_t* words() {
    return marks.spilled ? reinterpret_cast<uint64_t*>(inline_words[0])
                         : inline_words;
  }
  const uint64_t* words() const { return const_cast<Task*>(this)->words(); }
};
static_assert(sizeof(Task::Marks) == 4 && sizeof(Task) == 5 * kCacheLine);
static_assert(offsetof(Task, inline_words) == kCacheLine / 2);

}  // namespace npu
