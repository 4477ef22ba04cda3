// Host memory that somebody else allocated, and that counts as pinned.
#pragma once

#include <cstddef>

namespace npu {

// Copies from and to it are queued from now on, as for pinned memory; whoever
// owns it keeps it until they are done. Raises if a part of it is pinned.
void register_pinned(void* address, size_t bytes);
// Raises unless register_pinned() was given that address.
void unregister_pinned(void* address);

}  // namespace npu
