// Decides what may replace a tensor's data, as in `p.data = p.data.npu()`. Only
// where this is allowed does Module.to() keep its Parameter objects, which
// others may hold (tied weights, an optimizer made before).
#include "csrc/ops/kernels.h"

namespace npu {
namespace {

// Whether it is a strided tensor of the host or of this device, which have the
// same TensorImpl. torch's own rule only knows torch's own backends.
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

NPU_KERNELS(PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type",
         TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace
}  // namespace npu
