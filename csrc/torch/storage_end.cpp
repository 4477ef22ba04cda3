#include "csrc/torch/storage_end.h"

#include <ATen/EmptyTensor.h>

namespace npu {
namespace {

// The bytes of a storage up to the end of the tensor's last element.
size_t bytes_needed(const c10::TensorImpl& t) {
  return at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.itemsize(),
                                          size_t(t.storage_offset()));
}

}  // namespace

bool detail::ends_beyond_storage(const c10::TensorImpl& t) {
  return t.numel() && bytes_needed(t) > t.unsafe_storage().nbytes();
}

void raise_beyond_storage(const std::string& call, const std::string& argument,
                          const at::Tensor& t) {
  const c10::TensorImpl& impl = *t.unsafeGetTensorImpl();
  const size_t needed = bytes_needed(impl);
  TORCH_CHECK(false, call, ": ", argument, " needs ", needed,
              " bytes of its storage, which has ",
              impl.unsafe_storage().nbytes(),
              "; the storage was resized after the tensor was made: give it "
              "memory again with untyped_storage().resize_(",
              needed, ") before the call");
}

}  // namespace npu
