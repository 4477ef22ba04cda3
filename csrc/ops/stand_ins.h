// Tensors in place of a call's own that have the same relations: those that
// share a storage on the device share one here.
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
    kZeros,   // of the host
    kShared,  // the device's own, which it is done with
  };
  explicit StandIns(Memory memory) : memory_(memory) {}

  // For a strided tensor of the device; the same one for the same tensor.
  at::Tensor of(const at::Tensor& t);

 private:
  c10::Storage storage_for(const c10::Storage& own);

  const Memory memory_;
  std::unordered_map<const void*, c10::Storage> storages_;
  std::unordered_map<const void*, at::Tensor> tensors_;
};

}  // namespace npu
