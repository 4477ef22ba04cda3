// Makes and resizes npu tensors, and gives the host access to their memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace npu {

class Stream;

// Whether `t` is an ordinary (strided) npu tensor.
inline bool is_npu(const at::Tensor& t) {
  return t.defined() && t.key_set().has_all(
                            c10::DispatchKeySet(c10::DispatchKey::PrivateUse1));
}

// A new tensor with memory ordered on `stream`. Throws OutOfMemoryError.
at::Tensor make_tensor(Stream& stream, at::IntArrayRef sizes,
                       at::IntArrayRef strides, caffe2::TypeMeta dtype);
at::Tensor make_contiguous(Stream& stream, at::IntArrayRef sizes,
                           caffe2::TypeMeta dtype);
// The same for a caller that knows how many bytes that takes.
at::Tensor make_contiguous(Stream& stream, at::IntArrayRef sizes,
                           caffe2::TypeMeta dtype, size_t bytes);

// Changes the size of a storage; keeps the common bytes, in stream order.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

// Gives `t` a shape, growing its storage where needed. Strides: contiguous
// unless given.
void resize_tensor(const at::Tensor& t, at::IntArrayRef sizes,
                   std::optional<at::IntArrayRef> strides = std::nullopt);

// A tensor of the device over `bytes` of memory that exists.
at::Tensor device_tensor(c10::DataPtr memory, size_t bytes,
                         caffe2::TypeMeta dtype, bool resizable = true,
                         c10::DispatchKeySet keys = c10::DispatchKeySet(
                             c10::DispatchKey::PrivateUse1));

// A cpu tensor of this shape, and with these flags (tensor_flags.h), over
// memory that exists.
at::Tensor host_tensor(void* memory, at::IntArrayRef sizes,
                       at::IntArrayRef strides, caffe2::TypeMeta dtype,
                       uint8_t flags);

// A cpu tensor over the same memory. Does not wait: the caller knows that the
// device is done with the memory. Both tensors see each other's changes.
at::Tensor host_alias(const at::Tensor& t);

}  // namespace npu
