// Takes the memory of a mapped file before anybody touches it.
#pragma once

#include <cstddef>

namespace npu {

// Gives bytes [at, at + bytes) of the file their memory, or their place on the
// disk: touching a mapped page that has none raises SIGBUS. Returns 0 or an
// errno.
int allocate_pages(int file, size_t at, size_t bytes);

}  // namespace npu
