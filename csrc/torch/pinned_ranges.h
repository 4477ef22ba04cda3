// Host memory that was allocated elsewhere and counts as pinned.
#pragma once

#include <cstddef>

namespace npu {

// Copies from and to it are queued from now on, as for pinned memory. Its owner
// keeps it until they are done. Raises where a part of it is pinned already.
void register_pinned(void* address, size_t bytes);
// Raises unless register_pinned() was given that address.
void unregister_pinned(void* address);

}  // namespace npu
