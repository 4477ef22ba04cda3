// Finds out which written arguments of a call overlap other arguments. Kernels
// refuse some such calls, which they recognise by the tensors' storages.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <tuple>

#include "csrc/ops/key.h"
#include "csrc/ops/op.h"

namespace npu {

// How the arguments of a call overlap.
enum class Overlap : uint8_t {
  kNone,
  // They have exactly the same elements, or interleaved ones, which torch does
  // not examine.
  kUsual,
  // They have some elements in common, or a written tensor has one twice. Most
  // kernels refuse that, and only the kernel knows whether it does.
  kUnusual,
};
Overlap overlap_of(const Op& op, at::ArrayRef<c10::IValue> stack);

// Adds to a boxed call's key how its arguments overlap: a call whose arguments
// overlap needs another plan than one whose arguments do not. Of two lists,
// only elements with the same index are compared, as operators on lists use
// them.
void note_overlaps(Key& key, const Op& op, at::ArrayRef<c10::IValue> stack);

namespace detail {

// A tensor of a call: the number of its argument, and its number within that.
struct Place {
  uint32_t argument, element;
};

// Notes the overlap of two tensors of one storage, of which the call writes
// `written`.
[[gnu::cold]] void note_overlap(Key& key, Place written,
                                const c10::TensorImpl& w, Place other,
                                const c10::TensorImpl& o);

// The tensor's storage, or null.
inline const c10::StorageImpl* storage_of(const c10::TensorImpl& t) {
  return t.unsafe_storage().unsafeGetStorageImpl();
}

// Calls visit(tensor, number) with the tensors of a typed argument.
template <typename T, typename Visit>
void visit_tensors(const T&, Visit) {}
template <typename Visit>
void visit_tensors(const at::Tensor& t, Visit visit) {
  visit(t, 0);
}
template <typename Visit>
void visit_tensors(const std::optional<at::Tensor>& t, Visit visit) {
  if (t) visit(*t, 0);
}
template <ListOfTensors List, typename Visit>
void visit_tensors(const List& list, Visit visit) {
  uint32_t i = 0;
  for (const at::Tensor& t : list) visit(t, i++);
}
template <typename Visit>
void visit_tensors(const c10::List<std::optional<at::Tensor>>& list,
                   Visit visit) {
  uint32_t i = 0;
  for (const auto& element : list) {
    const std::optional<at::Tensor> t = element;
    if (t) visit(*t, i);
    ++i;
  }
}

template <uint32_t kNumber, typename Args, uint32_t... kOthers>
void note_overlaps_of(Key& key, const Args& args,
                      std::integer_sequence<uint32_t, kOthers...>) {
  const c10::TensorImpl& w = *std::get<kNumber>(args).unsafeGetTensorImpl();
  const c10::StorageImpl* const storage = storage_of(w);
  const auto meet = [&](uint32_t argument) {
    return [&, argument](const at::Tensor& other, uint32_t element) {
      const c10::TensorImpl& o = *other.unsafeGetTensorImpl();
      if (storage == storage_of(o) && storage) [[unlikely]]
        note_overlap(key, {kNumber, 0}, w, {argument, element}, o);
    };
  };
  const auto unless_same = [&]<uint32_t kOther>() {
    if constexpr (kOther != kNumber)
      visit_tensors(std::get<kOther>(args), meet(kOther));
  };
  (unless_same.template operator()<kOthers>(), ...);
}

}  // namespace detail

// The same for a call with typed arguments. `kWritten` has a bit for each
// argument that the call writes; each of these is a tensor.
template <uint32_t kWritten, typename... Args>
void note_overlaps(Key& key, const Args&... args) {
  const auto all = std::tie(args...);
  const auto numbers =
      std::make_integer_sequence<uint32_t, uint32_t(sizeof...(Args))>();
  const auto if_written = [&]<uint32_t kNumber>() {
    if constexpr (kNumber < 32 && (kWritten >> kNumber & 1))
      detail::note_overlaps_of<kNumber>(key, all, numbers);
  };
  [&]<uint32_t... kNumbers>(std::integer_sequence<uint32_t, kNumbers...>) {
    (if_written.template operator()<kNumbers>(), ...);
  }(numbers);
}

}  // namespace npu
