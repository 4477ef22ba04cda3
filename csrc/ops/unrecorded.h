// Calls for which autograd has nothing to record: no argument needs a gradient
// or has a tangent.
//
// torch's kernel for autograd finds that out as well, but it takes two or three
// dispatches, and copies handles of tensors to ask for their tangents. Where
// only Python holds a tensor, such a copy takes the GIL, which the caller has
// released: a fifth of what `x.add_(y)` executes (docs/internals/launch.md). So
// generated operators have a kernel of their own at autograd's key. It launches
// what is known and unrecorded, and leaves everything else to torch's.
#pragma once

#include <c10/core/DispatchKeySet.h>

#include "csrc/ops/launch.h"

namespace npu {

namespace detail {

// Whether autograd has to know of a call with this tensor, which has been used
// with autograd before.
[[gnu::noinline]] bool needs_autograd(const at::Tensor& t);

template <typename T>
bool is_recorded(const T& argument) {
  bool found = false;
  visit_tensors(argument, [&](const at::Tensor& t, uint32_t) {
    found = found ||
            (t.unsafeGetTensorImpl()->autograd_meta() && needs_autograd(t));
  });
  return found;
}

}  // namespace detail

// Whether nothing comes between autograd's key and the device's kernel. A mode,
// a subclass (FakeTensor is one), a transform or a conjugate view does, and has
// to see the operator as torch knows it.
inline bool goes_to_device(c10::DispatchKeySet keys) {
  return (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId() ==
         c10::DispatchKey::PrivateUse1;
}

// Whether a call that was dispatched to autograd's key may go to the device's
// kernel at once.
template <typename... Args>
bool is_unrecorded(c10::DispatchKeySet keys, const Args&... args) {
  return goes_to_device(keys) && !(detail::is_recorded(args) || ...);
}

// The same for a call that writes `written`; inference tensors, which count no
// versions, are left to torch.
template <typename... Written>
bool counts_versions(const Written&... written) {
  return (written.unsafeGetTensorImpl()->key_set().has(
              c10::DispatchKey::ADInplaceOrView) &&
          ...);
}

// What autograd does last with a tensor that a call has written.
inline void note_write(const at::Tensor& written) {
  written.unsafeGetTensorImpl()->bump_version();
}

// The keys by which a call reaches torch's kernel for autograd, which is the
// one of all backends, in spite of ours. The dispatcher in Python has had its
// turn: it would come back here.
inline c10::DispatchKeySet recorded_keys(c10::DispatchKeySet keys) {
  return keys.remove(c10::DispatchKey::PythonDispatcher)
      .remove(c10::DispatchKey::AutogradFunctionality)
      .add(c10::DispatchKey::AutogradOther);
}

// The keys by which a call of an operator that torch composes of others reaches
// that composition, or the decomposition in Python that stands in for it while
// torch traces. Keys above autograd's have had their turn.
inline c10::DispatchKeySet keys_of_composite(c10::DispatchKeySet keys) {
  return (keys & (c10::after_autograd_keyset |
                  c10::DispatchKeySet(c10::DispatchKey::PythonDispatcher)))
      .add(c10::DispatchKey::AutogradOther);
}

}  // namespace npu
