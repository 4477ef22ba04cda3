// What a capture asks the layers above for.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/driver/driver.h"

namespace npu {

// A kernel that belongs to one node of a graph.
struct OwnKernel {
  npu_kernel* kernel;
  void (*destroy)(npu_kernel*);
  int drawn_word;  // where its task has seed and offset; -1: not random
};

struct CaptureHooks {
  // Makes a kernel that belongs to one node, where `kernel` may be destroyed
  // before the graph. A null `kernel` in the result says that it may not. May
  // be null.
  OwnKernel (*own)(const npu_kernel* kernel);
  // The line of the user's program that is being executed, such as "file.py:12
  // in step", or "". May be null.
  std::string (*line)();
  // The same for a call site. May be null.
  std::string (*line_of)(uint32_t site);
  // The number of the capture that the calling thread takes part in because it
  // works for the thread that began it; 0: it works for none. May be null.
  uint64_t (*part_of)();
};

// Where each replay takes numbers that no other has: the offsets of random
// numbers, or the numbers of a group's collectives. Reserves `count` at once.
struct Draws {
  uint64_t seed, offset;
};
class NumberSource {
 public:
  virtual ~NumberSource() = default;
  virtual Draws reserve(uint64_t count) = 0;
};

void set_own_kernel_hook(OwnKernel (*own)(const npu_kernel*));
void set_line_hooks(std::string (*line)(), std::string (*line_of)(uint32_t));
void set_part_hook(uint64_t (*part_of)());
const CaptureHooks& capture_hooks();

}  // namespace npu
