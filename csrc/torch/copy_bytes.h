// A queued memcpy between any two addresses the device can reach.
#pragma once

#include <cstddef>

#include "csrc/stats/layout.h"

namespace npu {

class Stream;

// In stream order. Both ranges stay valid until then: the caller's business.
// Throws the stream's pending error.
void copy_bytes(Stream& stream, void* to, const void* from, size_t bytes,
                CopyKind kind);

// The source is read before this returns (it travels inside the task).
inline constexpr size_t kMaxInlineCopy = 16 * 1024;
void copy_inline(Stream& stream, void* to, const void* from, size_t bytes);

}  // namespace npu
