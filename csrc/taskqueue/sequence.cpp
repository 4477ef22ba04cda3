#include "csrc/taskqueue/sequence.h"

#include "csrc/base/clock.h"

namespace npu {

template <>
bool Sequence::spin(uint64_t target, uint64_t spin_ticks) {
  if (reached(target)) return true;
  want(target);
  const uint64_t start = ticks();
  do {
    for (int i = 0; i < 8; ++i) {
      if (reached(target)) return true;
      pause();
    }
  } while (ticks() - start < spin_ticks);
  return reached(target);
}

template class BasicSequence<System>;

}  // namespace npu
