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

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor wrap(size_t bytes, Stream& stream, caffe2::TypeMeta dtype) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, allocate_bytes(bytes, stream),
      npu_allocator(), /*resizable=*/true);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kKeys,
                                                  dtype);
}

}  // namespace

at::Tensor make_contiguous(Stream& stream, at::IntArrayRef sizes,
                           caffe2::TypeMeta dtype) {
  return make_contiguous(
      stream, sizes, dtype,
      at::detail::computeStorageNbytesContiguous(sizes, dtype.itemsize()));
}

at::Tensor make_contiguous(Stream& stream, at::IntArrayRef sizes,
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

at::Tensor host_alias(const at::Tensor& t) {
  const size_t bytes =
      at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.itemsize());
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      c10::DataPtr(t.unsafeGetTensorImpl()->mutable_data(),
                   c10::Device(c10::kCPU)),
      c10::GetCPUAllocator(), /*resizable=*/true);
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      t.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  copy_flags(t, alias);
  return alias;
}

}  // namespace npu
