// Whether a tensor ends within its storage. It does when it is made, but a
// storage may shrink later: untyped_storage().resize_(0).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace npu {

namespace detail {

bool ends_beyond_storage(const c10::TensorImpl& t);

}  // namespace detail

// Whether elements of the tensor lie beyond the end of its storage.
inline bool ends_beyond_storage(const at::Tensor& t) {
  const c10::TensorImpl& impl = *t.unsafeGetTensorImpl();
  if (!impl.has_storage()) return false;
  if (impl.is_contiguous() &&
      size_t(impl.storage_offset() + impl.numel()) * impl.itemsize() <=
          impl.unsafe_storage().nbytes()) [[likely]]
    return false;
  return detail::ends_beyond_storage(impl);
}

// Throws an error which says that `argument` of `call` ends beyond its storage.
[[noreturn]] void raise_beyond_storage(const std::string& call,
                                       const std::string& argument,
                                       const at::Tensor& t);

// Throws it where the tensor does.
inline void check_storage(const char* call, const char* argument,
                          const at::Tensor& t) {
  if (ends_beyond_storage(t)) [[unlikely]]
    raise_beyond_storage(call, argument, t);
}

}  // namespace npu
