// What a tensor is marked with beside its shape.
#pragma once

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

namespace npu {

struct TensorFlags {
  static constexpr uint8_t kContiguous = 1;
  static constexpr uint8_t kWrapped = 2;
  static constexpr uint8_t kConj = 4;
  static constexpr uint8_t kNeg = 8;
};

// All but kContiguous, which takes longer to find out.
inline uint8_t flags_of(const c10::TensorImpl& t) {
  uint8_t flags = 0;
  if (t.is_wrapped_number()) flags |= TensorFlags::kWrapped;
  if (t.is_conj()) flags |= TensorFlags::kConj;
  if (t.is_neg()) flags |= TensorFlags::kNeg;
  return flags;
}

// Sets the flags of a new tensor. Its values are those before conjugation and
// negation.
inline void set_flags(c10::TensorImpl& t, uint8_t flags) {
  if (flags & TensorFlags::kWrapped) t.set_wrapped_number(true);
  if (flags & TensorFlags::kConj) t._set_conj(true);
  if (flags & TensorFlags::kNeg) t._set_neg(true);
}

inline void copy_flags(const at::Tensor& from, const at::Tensor& to) {
  set_flags(*to.unsafeGetTensorImpl(), flags_of(*from.unsafeGetTensorImpl()));
}

// The strides of a new tensor.
inline at::DimVector default_strides(at::IntArrayRef sizes) {
  at::DimVector strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

// Whether a tensor's strides are those of a new one of its sizes. Stricter than
// is_contiguous(), for which the strides of dimensions of one element do not
// count.
inline bool has_default_strides(at::IntArrayRef sizes,
                                at::IntArrayRef strides) {
  int64_t expected = 1;
  int64_t wrong = 0;
  for (size_t i = sizes.size(); i-- > 0;) {
    wrong |= strides[i] ^ expected;
    if (sizes[i] > 1) expected *= sizes[i];
  }
  return wrong == 0;
}
inline bool has_default_strides(const c10::TensorImpl& t) {
  return t.is_contiguous() && has_default_strides(t.sizes(), t.strides());
}

// Makes the tensor's conjugate bit `conj`, and changes the values accordingly.
// A kernel may set its result's bit where the caller's tensor has none.
inline void set_conj(const at::Tensor& t, bool conj) {
  if (t.is_conj() == conj) [[likely]]
    return;
  t._set_conj(conj);
  t.conj_physical_();
}

}  // namespace npu
