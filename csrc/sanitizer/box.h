// The bytes that a strided tensor touches, and whether two such sets meet.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/driver/driver.h"

namespace npu {

// Runs of `item` bytes at lo + the sum of index * stride over the dimensions.
// Dimensions that continue each other are merged, and those of one stride.
// Without dimensions the box is every byte of [lo, hi).
struct Box {
  struct Dim {
    uint64_t stride;  // bytes, > 0
    uint64_t size;    // > 1
    bool operator==(const Dim&) const = default;
  };

  uintptr_t lo = 0, hi = 0;  // bounds; equal when nothing is touched
  uint64_t item = 0;
  std::vector<Dim> dims;  // by falling stride; most boxes have none

  bool empty() const { return lo == hi; }
  bool solid() const { return dims.empty(); }
};

// The bytes that `view` of a task with these words touches.
Box box_of(const npu_view& view, const uint64_t* words);

// kUnknown counts as a conflict for whoever reorders tasks, deletes what is
// known of one, or says that two need no order.
enum class Answer : uint8_t { kNo, kYes, kUnknown };

// Whether a byte belongs to both. kUnknown: to find it out takes too long,
// which happens only where several strides do not divide each other.
Answer overlap(const Box& a, const Box& b);

// Whether every byte of `inner` is known to be one of `outer`.
bool covers(const Box& outer, const Box& inner);

}  // namespace npu
