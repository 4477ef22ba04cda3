// What a result of a call looks like.
#pragma once

#include <c10/util/typeid.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace npu {

struct OutSpec {
  bool defined;
  bool contiguous;  // the strides are those of a new tensor of these sizes
  caffe2::TypeMeta dtype;
  std::vector<int64_t> sizes, strides;
  size_t bytes = 0;  // of its memory; a plan's
  bool operator==(const OutSpec&) const = default;
};

}  // namespace npu
