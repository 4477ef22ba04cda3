// Queues a memcpy between any two addresses that the device can reach.
#pragma once

#include <cstddef>

#include "csrc/stats/layout.h"

namespace npu {

class Stream;

// Copies in stream order; the caller keeps both ranges valid until then. Throws
// the stream's pending error.
void copy_bytes(Stream& stream, void* to, const void* from, size_t bytes,
                CopyKind kind);

// Copies likewise, but the source is read before this returns and travels
// inside the task.
inline constexpr size_t kMaxInlineCopy = 16 * 1024;
void copy_inline(Stream& stream, void* to, const void* from, size_t bytes);

}  // namespace npu
