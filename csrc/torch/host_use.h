// Tells observers that the calling thread itself touches tensors' memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>

#include "csrc/observe/observer.h"

namespace npu {

class Stream;

struct HostUse {
  const at::Tensor& tensor;
  uint8_t access;  // NPU_READ | NPU_WRITE
};

void tell_host_use(Stream& stream, const char* op, at::ArrayRef<HostUse> uses);

// `op` is about to run on the calling thread, which has waited for `stream`.
// Throws where an observer refuses it. `op` must live as long as the process.
inline void about_to_use(Stream& stream, const char* op,
                         std::initializer_list<HostUse> uses) {
  if (observed(Observer::kTasks)) [[unlikely]]
    tell_host_use(stream, op, uses);
}

}  // namespace npu
