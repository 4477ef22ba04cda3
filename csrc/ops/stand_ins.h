// Tensors that stand in for a call's own and have the same relations: where two
// share a storage on the device, their stand-ins share one, too.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <unordered_map>

#include "csrc/ops/op.h"

namespace npu {

class StandIns {
 public:
  enum class Memory {
    kNone,    // meta tensors
    kZeros,   // zeros in host memory
    kShared,  // the device's memory, with which the device is done
  };
  explicit StandIns(Memory memory) : memory_(memory) {}

  // The stand-in of a strided tensor of the device: one for each tensor.
  at::Tensor of(const at::Tensor& t);

 private:
  c10::Storage storage_for(const c10::Storage& own);

  const Memory memory_;
  std::unordered_map<const void*, c10::Storage> storages_;
  std::unordered_map<const void*, at::Tensor> tensors_;
};

}  // namespace npu
