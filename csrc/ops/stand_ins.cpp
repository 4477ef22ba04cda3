#include "csrc/ops/stand_ins.h"

#include <c10/core/CPUAllocator.h>

#include <cstdlib>

#include "csrc/torch/tensor_flags.h"

namespace npu {

c10::Storage StandIns::storage_for(const c10::Storage& own) {
  const size_t bytes = own.nbytes();
  const c10::Device cpu(c10::kCPU), meta(c10::kMeta);
  c10::DataPtr data(nullptr, memory_ == Memory::kNone ? meta : cpu);
  if (memory_ == Memory::kZeros) {
    // Pages that nobody touches cost nothing, however large the storage is.
    void* zeros = std::calloc(std::max<size_t>(bytes, 1), 1);
    TORCH_CHECK(zeros, "npu: no host memory to try an operator");
    data = c10::DataPtr(zeros, zeros, &std::free, cpu);
  } else if (memory_ == Memory::kShared) {
    data = c10::DataPtr(const_cast<void*>(own.data()), cpu);
  }
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(data),
      memory_ == Memory::kNone ? c10::GetAllocator(c10::kMeta)
                               : c10::GetCPUAllocator(),
      /*resizable=*/true));
}

at::Tensor StandIns::of(const at::Tensor& t) {
  at::Tensor& known = tensors_[t.unsafeGetTensorImpl()];
  if (known.defined()) return known;
  c10::Storage& storage = storages_[t.storage().unsafeGetStorageImpl()];
  if (!storage) storage = storage_for(t.storage());
  known = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage),
      c10::DispatchKeySet(memory_ == Memory::kNone ? c10::DispatchKey::Meta
                                                   : c10::DispatchKey::CPU),
      t.dtype());
  known.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(),
                                                     t.storage_offset());
  copy_flags(t, known);
  return known;
}

}  // namespace npu
