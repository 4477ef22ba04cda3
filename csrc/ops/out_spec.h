// What a result of a call looks like.
#pragma once

#include <ATen/DimVector.h>
#include <c10/util/typeid.h>

#include <cstddef>
#include <cstdint>

namespace npu {

struct OutSpec {
  bool defined;
  bool contiguous;  // the strides are those of a new tensor of these sizes
  caffe2::TypeMeta dtype;
  at::DimVector sizes, strides;
  size_t bytes = 0;  // of its memory; a plan's
  bool operator==(const OutSpec&) const = default;
};

}  // namespace npu
