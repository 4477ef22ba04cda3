// Memory for a file that is mapped, had before anybody touches it.
#pragma once

#include <cstddef>

namespace npu {

// Gives bytes [at, at + bytes) of the file their memory, or their place on the
// disk: a touch of a mapped page for which there is none is a SIGBUS. 0, or an
// errno.
int allocate_pages(int file, size_t at, size_t bytes);

}  // namespace npu
