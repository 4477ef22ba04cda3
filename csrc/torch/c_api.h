// The table that npu_dispatch/include/npu_dispatch.h describes.
#pragma once

#include "npu_dispatch/include/npu_dispatch.h"

namespace npu {

const npu_api& c_api();

}  // namespace npu
