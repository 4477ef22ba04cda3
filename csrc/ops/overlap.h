// Which arguments that a call writes lie where others of it lie. Kernels refuse
// some such calls, and find that out by their storages.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <tuple>
#include <vector>

#include "csrc/ops/key.h"
#include "csrc/ops/op.h"

namespace npu {

// What the arguments of a call have in common.
struct Overlap {
  enum class Degree : uint8_t {
    kNone,
    // The same elements, or interleaved ones, which torch does not look into.
    kUsual,
    // Some of the same elements, or a written tensor that has one twice: most
    // kernels refuse that, and only they know whether they do.
    kUnusual,
  };
  Degree degree = Degree::kNone;
  std::vector<int64_t> pairs;  // which arguments, and how

  explicit operator bool() const { return degree != Degree::kNone; }
};
Overlap overlap_of(const Op& op, at::ArrayRef<c10::IValue> stack);

// Makes what a boxed call's arguments have in common part of its key: a call
// whose arguments overlap is another one than a call whose arguments do not.
// Of two lists the elements of one number meet, as operators on lists take
// them.
void relate(Key& key, const Op& op, at::ArrayRef<c10::IValue> stack);

namespace detail {

// A tensor of a call: its argument's number, and its own in that.
struct Place {
  uint32_t argument, element;
};

// For two of one storage; `written` is.
[[gnu::cold]] void relate(Key& key, Place written, const c10::TensorImpl& w,
                          Place other, const c10::TensorImpl& o);

// Null for what has none.
inline const c10::StorageImpl* storage_of(const c10::TensorImpl& t) {
  return t.unsafe_storage().unsafeGetStorageImpl();
}

template <typename T, typename Visit>
void visit_tensors(const T&, Visit) {}
template <typename Visit>
void visit_tensors(const at::Tensor& t, Visit visit) {
  visit(*t.unsafeGetTensorImpl(), 0);
}
template <typename Visit>
void visit_tensors(const std::optional<at::Tensor>& t, Visit visit) {
  if (t) visit(*t->unsafeGetTensorImpl(), 0);
}
template <typename List, typename Visit>
void visit_list(const List& list, Visit visit) {
  uint32_t i = 0;
  for (const at::Tensor& t : list) visit(*t.unsafeGetTensorImpl(), i++);
}
template <typename Visit>
void visit_tensors(const at::TensorList& list, Visit visit) {
  visit_list(list, visit);
}
template <typename Visit>
void visit_tensors(const at::ITensorListRef& list, Visit visit) {
  visit_list(list, visit);
}
template <typename Visit>
void visit_tensors(const c10::List<std::optional<at::Tensor>>& list,
                   Visit visit) {
  uint32_t i = 0;
  for (const auto& element : list) {
    const std::optional<at::Tensor> t = element;
    if (t) visit(*t->unsafeGetTensorImpl(), i);
    ++i;
  }
}

template <uint32_t kNumber, typename Args, uint32_t... kOthers>
void relate_one(Key& key, const Args& args,
                std::integer_sequence<uint32_t, kOthers...>) {
  const c10::TensorImpl& w = *std::get<kNumber>(args).unsafeGetTensorImpl();
  const c10::StorageImpl* const storage = storage_of(w);
  const auto meet = [&](uint32_t argument) {
    return [&, argument](const c10::TensorImpl& o, uint32_t element) {
      if (storage == storage_of(o) && storage) [[unlikely]]
        relate(key, {kNumber, 0}, w, {argument, element}, o);
    };
  };
  const auto unless_same = [&]<uint32_t kOther>() {
    if constexpr (kOther != kNumber)
      visit_tensors(std::get<kOther>(args), meet(kOther));
  };
  (unless_same.template operator()<kOthers>(), ...);
}

}  // namespace detail

// The same of a call whose arguments have their types. `kWritten`: those that
// it writes, by bits; each is a tensor.
template <uint32_t kWritten, typename... Args>
void relate(Key& key, const Args&... args) {
  const auto all = std::tie(args...);
  const auto numbers =
      std::make_integer_sequence<uint32_t, uint32_t(sizeof...(Args))>();
  const auto if_written = [&]<uint32_t kNumber>() {
    if constexpr (kNumber < 32 && (kWritten >> kNumber & 1))
      detail::relate_one<kNumber>(key, all, numbers);
  };
  [&]<uint32_t... kNumbers>(std::integer_sequence<uint32_t, kNumbers...>) {
    (if_written.template operator()<kNumbers>(), ...);
  }(numbers);
}

}  // namespace npu
