#include "csrc/torch/tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>

#include "csrc/torch/allocator.h"
#include "csrc/torch/copy_bytes.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

at::Tensor wrap(size_t bytes, Stream& stream, caffe2::TypeMeta dtype) {
  return device_tensor(allocate_bytes(bytes, stream), bytes, dtype);
}

}  // namespace

at::Tensor make_contiguous(Stream& stream, at::IntArrayRef sizes,
                           caffe2::TypeMeta dtype) {
  return make_contiguous(
      stream, sizes, dtype,
      at::detail::computeStorageNbytesContiguous(sizes, dtype.itemsize()));
}

[[gnu::hot]] at::Tensor make_contiguous(Stream& stream, at::IntArrayRef sizes,
                                        caffe2::TypeMeta dtype, size_t bytes) {
  at::Tensor t = wrap(bytes, stream, dtype);
  if (sizes.size() != 1 || sizes[0] != 0)
    t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return t;
}

at::Tensor make_tensor(Stream& stream, at::IntArrayRef sizes,
                       at::IntArrayRef strides, caffe2::TypeMeta dtype) {
  const size_t bytes =
      at::detail::computeStorageNbytes(sizes, strides, dtype.itemsize());
  at::Tensor t = wrap(bytes, stream, dtype);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return t;
}

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(),
              "Trying to resize storage that is not resizable");
  Stream& stream = usable_stream(storage.device().index());
  c10::DataPtr fresh = allocate_bytes(bytes, stream);
  const size_t common = std::min(bytes, storage.nbytes());
  if (common)
    copy_bytes(stream, fresh.get(), storage.data(), common,
               CopyKind::kOnDevice);
  // The old block goes back in program order, after the copy.
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(bytes);
}

void resize_tensor(const at::Tensor& t, at::IntArrayRef sizes,
                   std::optional<at::IntArrayRef> strides) {
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  // A tensor that already has these sizes keeps its strides, whatever they are.
  if (t.sizes() == sizes && (!strides || t.strides() == *strides)) return;
  if (strides) {
    impl->set_sizes_and_strides(sizes, *strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  const size_t needed = at::detail::computeStorageNbytes(
      t.sizes(), t.strides(), t.itemsize(), size_t(t.storage_offset()));
  if (t.numel() && needed > t.storage().nbytes())
    resize_storage(*t.storage().unsafeGetStorageImpl(), needed);
}

[[gnu::hot]] at::Tensor device_tensor(c10::DataPtr memory, size_t bytes,
                                      caffe2::TypeMeta dtype, bool resizable,
                                      c10::DispatchKeySet keys) {
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                            bytes, std::move(memory),
                                            npu_allocator(), resizable),
      keys, dtype);
}

at::Tensor host_tensor(void* memory, at::IntArrayRef sizes,
                       at::IntArrayRef strides, caffe2::TypeMeta dtype,
                       uint8_t flags) {
  const size_t bytes =
      at::detail::computeStorageNbytes(sizes, strides, dtype.itemsize());
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), bytes,
          c10::DataPtr(memory, c10::Device(c10::kCPU)), c10::GetCPUAllocator(),
          // Some kernels use their output as scratch space and grow it.
          /*resizable=*/true),
      c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  set_flags(*t.unsafeGetTensorImpl(), flags);
  return t;
}

at::Tensor host_alias(const at::Tensor& t) {
  c10::TensorImpl& impl = *t.unsafeGetTensorImpl();
  return host_tensor(impl.mutable_data(), t.sizes(), t.strides(), t.dtype(),
                     flags_of(impl));
}

}  // namespace npu
