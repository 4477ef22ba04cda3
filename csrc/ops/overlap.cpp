#include "csrc/ops/overlap.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>

#include "csrc/torch/tensor.h"

namespace npu {
namespace {

using detail::Place;

// The number of bytes from a tensor's first element to the end of its last.
size_t extent(const c10::TensorImpl& t) {
  return at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.itemsize());
}

bool have_bytes_in_common(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const char* const from = static_cast<const char*>(a.data());
  const char* const other = static_cast<const char*>(b.data());
  return from < other + extent(b) && other < from + extent(a);
}

bool is_list(ArgKind kind) {
  return kind == ArgKind::kTensorList || kind == ArgKind::kOptionalTensorList;
}

// The elements of an argument that may be tensors.
at::ArrayRef<c10::IValue> elements(ArgKind kind, const c10::IValue& value) {
  if (value.isNone()) return {};
  if (kind == ArgKind::kTensor) return value;
  return is_list(kind) ? value.toListRef() : at::ArrayRef<c10::IValue>();
}

const c10::TensorImpl* tensor_in(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().unsafeGetTensorImpl() : nullptr;
}

// Calls visit(place, tensor, place, tensor) for each written tensor of the call
// and each other tensor of the same storage.
template <typename Visit>
void for_each_pair(const Op& op, at::ArrayRef<c10::IValue> stack, Visit visit) {
  const Op::Schema& schema = op.schema();
  if (!schema.writes_any) return;
  for (uint32_t w = 0; w < stack.size(); ++w) {
    if (!schema.writes[w] || (w < 32 && !(op.compared >> w & 1))) continue;
    const auto written = elements(schema.kinds[w], stack[w]);
    for (uint32_t o = 0; o < stack.size(); ++o) {
      if (o == w) continue;
      const auto others = elements(schema.kinds[o], stack[o]);
      const bool pairwise =
          is_list(schema.kinds[w]) && is_list(schema.kinds[o]);
      for (uint32_t i = 0; i < written.size(); ++i) {
        const c10::TensorImpl* const t = tensor_in(written[i]);
        const auto* const storage = t ? detail::storage_of(*t) : nullptr;
        if (!storage) continue;
        const size_t end =
            pairwise ? std::min<size_t>(i + 1, others.size()) : others.size();
        for (uint32_t k = pairwise ? i : 0; k < end; ++k) {
          const c10::TensorImpl* const other = tensor_in(others[k]);
          if (other && storage == detail::storage_of(*other)) [[unlikely]]
            visit(Place{w, i}, *t, Place{o, k}, *other);
        }
      }
    }
  }
}

}  // namespace

void detail::note_overlap(Key& key, Place written, const c10::TensorImpl& w,
                          Place other, const c10::TensorImpl& o) {
  if (!key.ordinary || (&w != &o && !have_bytes_in_common(w, o))) return;
  key.key.push(uint64_t(Tag::kOverlap) | uint64_t(&w == &o) << 8 |
               uint64_t(written.argument) << 16 |
               uint64_t(other.argument) << 40);
  key.key.push(uint64_t(written.element) << 32 | other.element);
  key.key.push(uint64_t(static_cast<const char*>(o.data()) -
                        static_cast<const char*>(w.data())));
}

void note_overlaps(Key& key, const Op& op, at::ArrayRef<c10::IValue> stack) {
  for_each_pair(
      op, stack,
      [&](Place a, const c10::TensorImpl& w, Place b,
          const c10::TensorImpl& o) { detail::note_overlap(key, a, w, b, o); });
}

Overlap overlap_of(const Op& op, at::ArrayRef<c10::IValue> stack) {
  const Op::Schema& schema = op.schema();
  if (!schema.writes_any) return Overlap::kNone;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!schema.writes[i]) continue;
    for (const c10::IValue& element : elements(schema.kinds[i], stack[i])) {
      const c10::TensorImpl* const t = tensor_in(element);
      if (t && is_npu(element.toTensor()) &&
          at::has_internal_overlap(const_cast<c10::TensorImpl*>(t)) ==
              at::MemOverlap::Yes)
        return Overlap::kUnusual;
    }
  }
  Overlap found = Overlap::kNone;
  for_each_pair(
      op, stack,
      [&](Place, const c10::TensorImpl& w, Place, const c10::TensorImpl& o) {
        if (!w.key_set().has(c10::DispatchKey::PrivateUse1) ||
            !o.key_set().has(c10::DispatchKey::PrivateUse1) ||
            (&w != &o && !have_bytes_in_common(w, o)))
          return;
        const bool partial =
            at::get_overlap_status(&w, &o) == at::MemOverlapStatus::Partial;
        found = std::max(found, partial ? Overlap::kUnusual : Overlap::kUsual);
      });
  return found;
}

}  // namespace npu
