// What calls of one identity share on a stream, whoever makes them.
#pragma once

#include <memory>
#include <vector>

#include "csrc/ops/frame.h"
#include "csrc/ops/out_spec.h"

namespace npu {

class Stream;

// A caller's thread makes it; only the launcher of the stream uses the frames,
// for one task at a time.
struct Family {
  Family(const Op& op, std::vector<OutSpec> outs);

  // Whether a frame of this family can hold such results.
  bool suits(const std::vector<OutSpec>& outs) const;

  const Op& op;
  const std::vector<OutSpec> outs;  // of one of the calls, in order
  std::unique_ptr<Frame> frame;
  std::vector<std::unique_ptr<Frame>> pieces;  // kernel_pieces.h
};

// The family of the identity that has a plan on the stream, or null.
std::shared_ptr<Family> known_family(Stream& stream,
                                     at::ArrayRef<uint64_t> identity);

// The family that such results suit: the known one, or a new one, which lives
// as long as a plan has it.
std::shared_ptr<Family> family_for(Stream& stream,
                                   at::ArrayRef<uint64_t> identity,
                                   const Op& op,
                                   const std::vector<OutSpec>& outs);

}  // namespace npu
