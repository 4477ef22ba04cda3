// The bytes that a strided tensor touches, and whether two such sets meet.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/driver/driver.h"

namespace npu {

// Runs of `item` bytes at lo + the sum of index * stride over the dimensions.
// Dimensions that continue each other are merged. Without dimensions the box is
// every byte of [lo, hi).
struct Box {
  static constexpr int kDims = 6;
  struct Dim {
    uint64_t stride;  // bytes, > 0
    uint64_t size;    // > 1
  };

  uintptr_t lo = 0, hi = 0;  // bounds; equal when nothing is touched
  uint64_t item = 0;
  int ndim = 0;
  // There were more dimensions than fit: only the bounds are known.
  bool vague = false;
  Dim dims[kDims];  // by falling stride

  Box() = default;
  // Copies only the dimensions that there are: most boxes have none.
  Box(const Box& other) { *this = other; }
  Box& operator=(const Box& other) {
    lo = other.lo, hi = other.hi, item = other.item;
    ndim = other.ndim, vague = other.vague;
    std::copy(other.dims, other.dims + other.ndim, dims);
    return *this;
  }

  bool empty() const { return lo == hi; }
  bool solid() const { return ndim == 0 && !vague; }
};

// The bytes that `view` of a task with these words touches.
Box box_of(const npu_view& view, const uint64_t* words);

// Whether a byte belongs to both. The answer is exact, unless finding it takes
// too long (many dimensions whose strides do not nest): then it is no.
bool overlap(const Box& a, const Box& b);

// Whether every byte of `inner` is known to be one of `outer`.
bool covers(const Box& outer, const Box& inner);

}  // namespace npu
