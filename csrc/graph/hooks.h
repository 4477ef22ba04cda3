// What capturing asks of the layers above.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/driver/driver.h"

namespace npu {

// A kernel that belongs to one node of a graph.
struct OwnKernel {
  npu_kernel* kernel;
  void (*destroy)(npu_kernel*);
  int random_word;  // where its task has seed and offset; -1: not random
};

struct CaptureHooks {
  // A kernel for a node of its own, when `kernel` may go away; null `kernel` in
  // the result: it stays. May be null.
  OwnKernel (*own)(const npu_kernel* kernel);
  // The line of the user's program that is being executed, as "file.py:12 in
  // step", or "". May be null.
  std::string (*line)();
};

// Where random numbers come from: reserves `count` offsets at once.
struct Draws {
  uint64_t seed, offset;
};
class RandomSource {
 public:
  virtual ~RandomSource() = default;
  virtual Draws reserve(uint64_t count) = 0;
};

void set_own_kernel_hook(OwnKernel (*own)(const npu_kernel*));
void set_line_hook(std::string (*line)());
const CaptureHooks& capture_hooks();

}  // namespace npu
