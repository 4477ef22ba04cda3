// Which memory a replay reads and writes.
#pragma once

#include <cstdint>
#include <vector>

namespace npu {

class Body;

// The bytes [lo, hi).
struct ByteRange {
  uintptr_t lo, hi;
};

// All that a replay writes, by address: ranges that neither meet nor touch.
// What lies between the elements of a strided tensor is included.
std::vector<ByteRange> written_bytes(const Body& body);
// The same of all that it reads.
std::vector<ByteRange> read_bytes(const Body& body);

// Whether one of `ranges`, which are as those functions return them, has a byte
// of [lo, hi).
bool meet(const std::vector<ByteRange>& ranges, uintptr_t lo, uintptr_t hi);

}  // namespace npu
