// Kernels in pieces, each of which is the same operator on a part of each
// tensor. Cores that are idle are used as they come (shared_loop.h).
#pragma once

#include <ATen/DimVector.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "csrc/driver/driver.h"

namespace npu {

// Along which dimension every tensor of a call is cut that has it.
struct Cut {
  enum class Dim : uint8_t {
    kNone,       // the call is not cut
    kFromFirst,  // the first dimension is 0
    kFromLast,   // the last one is 1
    kElements,   // the elements as they lie in memory
  };
  Dim counted = Dim::kNone;
  bool wakes = false;  // it takes longer than a wake-up
  uint32_t dim = 0;
  int64_t length = 0;  // of the dimension; 0: it differs

  explicit operator bool() const { return counted != Dim::kNone; }
};

// What decides whether an operator's kernel may be cut.
struct KernelKind {
  std::string_view name;  // "aten::add"
  bool element_wise;      // each result is as large as the arguments together
  bool on_lists;          // it takes lists only, and works on each element
  bool is_random;
};

// `arguments` and `views` as of kernel_size().
Cut cut_of(const KernelKind& kind, at::ArrayRef<c10::IValue> arguments,
           at::ArrayRef<npu_view> views);

// Into how many pieces it is worth to cut the call now; 1: it is not.
int pieces_of(const Cut& cut);

// Writes the sizes of a piece to the views, and how many bytes behind the
// beginning of its tensor each view begins. `sizes` keeps what views point to.
void cut_views(const Cut& cut, int piece, int pieces,
               std::vector<npu_view>& views, std::vector<uint64_t>& offsets,
               std::vector<at::DimVector>& sizes);

// Calls run(piece) for each piece, here and on cores that are idle. `wakes`: as
// of run_shared().
void run_pieces(int pieces, bool wakes, c10::function_ref<void(int)> run);

}  // namespace npu
