// The thread state in which cpu kernels run on behalf of a device.
#pragma once

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace npu {

// Calls go below autograd, autocast and the like, whatever state the thread was
// in.
class KernelMode {
  static constexpr c10::DispatchKeySet kExcluded =
      c10::DispatchKeySet(c10::DispatchKey::TESTING_ONLY_GenericMode) |
      c10::autograd_dispatch_keyset_with_ADInplaceOrView |
      c10::autocast_dispatch_keyset | c10::python_ks;

 public:
  KernelMode() : exclude_(kExcluded) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
};

}  // namespace npu
