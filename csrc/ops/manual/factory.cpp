// Operators that make or reshape memory.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/TensorShape.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "csrc/ops/kernels.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/device.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

void check_options(std::optional<at::Layout> layout,
                   std::optional<bool> pinned) {
  TORCH_CHECK(!layout || *layout == at::kStrided,
              "npu: only strided tensors can be made empty, got layout ",
              *layout);
  TORCH_CHECK(!pinned || !*pinned, "Only dense CPU tensors can be pinned");
}

Stream& stream_for(std::optional<at::Device> device) {
  return usable_stream(device_or_current(device ? device->index() : -1));
}

// Whether new memory has to be filled, because the process asks for the same
// values in every run (torch.use_deterministic_algorithms).
bool fills_uninitialized() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() &&
         context.deterministicFillUninitializedMemory();
}

at::Tensor filled(at::Tensor t) {
  if (fills_uninitialized()) [[unlikely]]
    at::native::fill_empty_deterministic_(t);
  return t;
}

caffe2::TypeMeta type_of(std::optional<at::ScalarType> dtype) {
  const at::ScalarType type = at::dtype_or_default(dtype);
  if (type == at::kComplexHalf) [[unlikely]] {  // as torch for cpu and CUDA
    TORCH_WARN_ONCE(
        "ComplexHalf support is experimental and many operators don't support "
        "it yet.");
  }
  return c10::scalarTypeToTypeMeta(type);
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pinned,
                 std::optional<at::MemoryFormat> format) {
  check_options(layout, pinned);
  at::detail::check_size_nonnegative(sizes);
  at::Tensor t = make_contiguous(stream_for(device), sizes, type_of(dtype));
  if (format && *format != at::MemoryFormat::Contiguous)
    t.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return filled(std::move(t));
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout,
                         std::optional<at::Device> device,
                         std::optional<bool> pinned) {
  check_options(layout, pinned);
  at::detail::check_size_nonnegative(sizes);
  return filled(
      make_tensor(stream_for(device), sizes, strides, type_of(dtype)));
}

// Makes a tensor of zeros without memory; torch turns it into a real one when
// needed.
at::Tensor efficient_zeros(at::IntArrayRef sizes,
                           std::optional<at::ScalarType> dtype,
                           std::optional<at::Layout> layout,
                           std::optional<at::Device> device,
                           std::optional<bool> pinned) {
  check_options(layout, pinned);
  const auto type = c10::scalarTypeToTypeMeta(at::dtype_or_default(dtype));
  const c10::Device on(
      kNpu, c10::DeviceIndex(device_or_current(device ? device->index() : -1)));
  at::Tensor t = device_tensor(
      c10::DataPtr(nullptr, on),
      at::detail::computeStorageNbytesContiguous(sizes, type.itemsize()), type,
      /*resizable=*/false,
      c10::DispatchKeySet(
          {c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor}));
  t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return t;
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  const int64_t bytes = int64_t(self.storage().nbytes());
  resize_tensor(self, sizes);
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve,
                "Unsupported memory format", *format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  if (fills_uninitialized()) [[unlikely]]
    at::native::fill_resize_deterministic_(self, bytes);
  return self;
}

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source,
                                      int64_t offset, at::IntArrayRef sizes,
                                      at::IntArrayRef strides) {
  at::native::checkSetStorage(self, source, offset, sizes, strides);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  resize_tensor(self, sizes,
                strides.data() ? std::optional(strides) : std::nullopt);
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  const int64_t n = int64_t(source.nbytes() / self.itemsize());
  return set_source_storage_offset(self, std::move(source), 0, n, {});
}

at::Tensor& set_(at::Tensor& self) {
  at::Storage empty_storage(
      c10::Storage::use_byte_size_t(), 0,
      allocate_bytes(0, usable_stream(self.device().index())), npu_allocator(),
      true);
  return set_source_storage_offset(self, std::move(empty_storage), 0, 0, {});
}

NPU_KERNELS(PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zeros));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_", TORCH_FN(set_));
  m.impl("set_.source_Storage", TORCH_FN(set_source_storage));
  m.impl("set_.source_Storage_storage_offset",
         TORCH_FN(set_source_storage_offset));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
}

}  // namespace
}  // namespace npu
