#include "csrc/base/file_memory.h"

#include <errno.h>
#include <fcntl.h>

namespace npu {

int allocate_pages(int file, size_t at, size_t bytes) {
  // A signal interrupts and undoes the call, and a timer of the program may
  // send one again and again.
  constexpr int kTries = 100;
  int failed = EINTR;
  for (int i = 0; i < kTries && failed == EINTR; ++i)
    failed = posix_fallocate(file, off_t(at), off_t(bytes));
  return failed;
}

}  // namespace npu
