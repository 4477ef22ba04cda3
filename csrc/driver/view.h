// What a view covers, whichever of its two forms it has (driver.h).
#pragma once

#include <vector>

#include "csrc/driver/driver.h"

namespace npu {

// Whether the view's length is in the task's words and not in the view.
inline bool is_range(const npu_view& view) { return !view.sizes && view.ndim; }

// A range has one size and a stride of one.
inline std::vector<int64_t> sizes_of(const npu_view& view,
                                     const uint64_t* words) {
  if (is_range(view)) return {int64_t(words[view.ndim])};
  return {view.sizes, view.sizes + view.ndim};
}
inline std::vector<int64_t> strides_of(const npu_view& view) {
  if (is_range(view)) return {1};
  return {view.strides, view.strides + view.ndim};
}

}  // namespace npu
