// What may take the place of a tensor's data: `p.data = p.data.npu()`, and with
// it Module.to(), which keeps the Parameters that others hold (tied weights, an
// optimizer made before) only where this is allowed.
#include <torch/library.h>

namespace npu {
namespace {

// Strided tensors of the host and of this device have the same TensorImpl.
// torch's own rule knows its own backends only.
bool is_plain(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet kBackends(
      {c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit});
  return keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) &&
         keys.has_any(kBackends);
}

bool has_compatible_shallow_copy_type(const at::Tensor& self,
                                      const at::Tensor& from) {
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(
             from.key_set()) ||
         (is_plain(self.key_set()) && is_plain(from.key_set()));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type",
         TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace
}  // namespace npu
