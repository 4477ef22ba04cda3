// The shape, strides and dtype of a call's result.
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
  size_t bytes = 0;  // of its memory; set in plans
  bool operator==(const OutSpec&) const = default;
};

}  // namespace npu
