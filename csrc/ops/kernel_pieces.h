// Kernels in pieces, each of which is the same operator on a part of each
// tensor. Cores that are idle are used as they come (shared_loop.h).
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>

#include "csrc/driver/driver.h"
#include "csrc/ops/op.h"

namespace npu {

struct Family;

// Along which dimension every tensor of a call is cut that has it.
struct Cut {
  enum class Dim : uint8_t {
    kNone,       // the call is not cut
    kFromFirst,  // the first dimension is 0
    kFromLast,   // the last one is 1
  };
  Dim counted = Dim::kNone;
  bool wakes = false;  // it takes longer than a wake-up
  uint32_t dim = 0;
  int64_t length = 0;  // of the dimension; 0: it differs

  explicit operator bool() const { return counted != Dim::kNone; }
};

// As kernel_size().
Cut cut_of(const Op& op, at::ArrayRef<c10::IValue> arguments,
           at::ArrayRef<npu_view> views);

// A task, and what its plan knows about it.
struct CutTask {
  Family& family;
  uint64_t serial;  // of the plan
  const Cut& cut;
  at::ArrayRef<npu_view> views;
  at::ArrayRef<uint64_t> key;  // of the plan
  const uint64_t* words;
};

// False: there is one thread for it, and nothing was done. Only the launcher.
bool run_in_pieces(const CutTask& task);

}  // namespace npu
