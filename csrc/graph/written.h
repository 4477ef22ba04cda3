// Which memory a replay writes.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/graph/body.h"

namespace npu {

// The bytes [lo, hi).
struct Bytes {
  uintptr_t lo, hi;
};

// All that a replay writes, by address: ranges that neither meet nor touch.
// What lies between the elements of a strided tensor is included.
std::vector<Bytes> written_bytes(const Body& body);

// Whether one of `ranges`, which are as written_bytes() returns them, has a
// byte of [lo, hi).
bool meet(const std::vector<Bytes>& ranges, uintptr_t lo, uintptr_t hi);

}  // namespace npu
