#include "csrc/ops/key.h"

#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

// Adds one word of description, then the sizes, then the strides unless they
// are those of a new tensor of these sizes. (Other strides may count as
// contiguous, too, but results take over the exact ones.) Returns how many
// elements there are from the first to the last, where there are any.
inline int64_t describe(Words& key, const c10::TensorImpl* impl, Tag tag,
                        at::IntArrayRef sizes, at::IntArrayRef strides,
                        uint8_t value_class = 0) {
  const size_t rank = sizes.size();
  uint64_t* const at = key.room(1 + 2 * rank);
  // Both are copied, and the strides given up where they are the default ones
  // (has_default_strides()), which is found out on the way.
  int64_t expected = 1, wrong = 0, reach = 1;
  for (size_t i = rank; i-- > 0;) {
    const int64_t size = sizes[i], stride = strides[i];
    reach += (size - 1) * stride;
    at[1 + i] = uint64_t(size);
    at[1 + rank + i] = uint64_t(stride);
    wrong |= stride ^ expected;
    expected *= size > 1 ? size : 1;
  }
  const bool contiguous = !wrong;
  const uint8_t flags =
      flags_of(*impl) | (contiguous ? TensorFlags::kContiguous : 0);
  at[0] = uint64_t(tag) | uint64_t(flags) << 8 |
          uint64_t(impl->dtype().toScalarType()) << 16 |
          uint64_t(value_class) << 24 | uint64_t(rank) << 32;
  key.end_at(at + 1 + (contiguous ? rank : 2 * rank));
  return reach;
}

// Whether the storage has that many elements from the tensor's first on. It may
// have been resized since the tensor was made.
inline bool reaches(const c10::TensorImpl& t, int64_t elements) {
  return uint64_t(t.storage_offset() + elements) * t.itemsize() <=
         t.unsafe_storage().nbytes();
}

uint8_t class_of(at::ScalarType type, const void* bytes) {
  switch (type) {
    case at::kDouble:
      return value_class(*static_cast<const double*>(bytes));
    case at::kFloat:
      return value_class(*static_cast<const float*>(bytes));
    case at::kLong:
      return value_class(double(*static_cast<const int64_t*>(bytes)));
    case at::kInt:
      return value_class(*static_cast<const int32_t*>(bytes));
    case at::kShort:
      return value_class(*static_cast<const int16_t*>(bytes));
    case at::kChar:
      return value_class(*static_cast<const int8_t*>(bytes));
    case at::kByte:
      return value_class(*static_cast<const uint8_t*>(bytes));
    case at::kHalf:
      return value_class(float(*static_cast<const at::Half*>(bytes)));
    case at::kBFloat16:
      return value_class(float(*static_cast<const at::BFloat16*>(bytes)));
    default:
      return 0;
  }
}

}  // namespace

void Words::grow(size_t more) {
  size_t capacity = size_t(limit_ - begin_) * 2;
  while (capacity < size() + more) capacity *= 2;
  uint64_t* data = new uint64_t[capacity];
  memcpy(data, begin_, size() * sizeof(uint64_t));
  end_ = data + size();
  if (begin_ != inline_) delete[] begin_;
  begin_ = data;
  limit_ = data + capacity;
}

[[gnu::hot]] void Key::add_npu(c10::TensorImpl* impl, at::IntArrayRef sizes,
                               at::IntArrayRef strides) {
  const int64_t reach = describe(key, impl, Tag::kTensor, sizes, strides);
  const int index = impl->device().index();
  if (device != index) {
    if (device >= 0) ordinary = false;
    device = index;
  }
  words.push(reinterpret_cast<uint64_t>(impl->mutable_data()));
  if (!reaches(*impl, reach) && impl->numel()) [[unlikely]]
    ordinary = false;  // the slow path says what is wrong
}

[[gnu::hot]] void Key::add(const at::Tensor& t) {
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  // An undefined tensor has no keys.
  if (impl->key_set().has_all(
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1))) [[likely]]
    return add_npu(impl, impl->sizes(), impl->strides());
  if (!t.defined()) {
    tag(Tag::kUndefined);
    return;
  }
  if (impl->device_type() == c10::kCPU && impl->dim() == 0 &&
      impl->layout() == c10::kStrided && impl->itemsize() <= 16 &&
      impl->has_storage() && reaches(*impl, 1)) {
    describe(key, impl, Tag::kHostScalar, {}, {},
             class_of(impl->dtype().toScalarType(), impl->data()));
    uint64_t value[2] = {0, 0};
    memcpy(value, impl->data(), impl->itemsize());
    words.push(value[0]);
    words.push(value[1]);
    if (numbers_in_key_) key.append(value, sizeof value);
    return;
  }
  ordinary = false;
}

void Key::add_rows(const at::Tensor& t) {
  if (t.dim() == 2) return add(t);
  const int64_t columns = t.size(-1);
  const int64_t sizes[] = {t.numel() / columns, columns};
  const int64_t strides[] = {columns, 1};
  add_npu(t.unsafeGetTensorImpl(), sizes, strides);
}

void Key::add_transposed(const at::Tensor& t) {
  const int64_t sizes[] = {t.size(1), t.size(0)};
  const int64_t strides[] = {t.stride(1), t.stride(0)};
  add_npu(t.unsafeGetTensorImpl(), sizes, strides);
}

[[gnu::hot]] void Key::add(const at::Scalar& s) {
  uint64_t value[2] = {0, 0};
  uint8_t value_class = 0;
  const at::ScalarType type = s.type();
  if (type == at::kLong) [[likely]] {
    const int64_t number = s.toLong();
    value[0] = uint64_t(number);
    value_class = npu::value_class(double(number));
  } else if (s.isFloatingPoint()) {
    const double number = s.toDouble();
    value[0] = std::bit_cast<uint64_t>(number);
    value_class = npu::value_class(number);
  } else if (s.isComplex()) {
    const auto number = s.toComplexDouble();
    memcpy(value, &number, sizeof number);
  } else if (type == at::kUInt64) {
    value[0] = s.toUInt64();
    value_class = npu::value_class(double(value[0]));
  } else {
    const int64_t number = s.toLong();
    value[0] = uint64_t(number);
    value_class = npu::value_class(double(number));
  }
  tag(Tag::kScalar, uint64_t(type) | uint64_t(value_class) << 8);
  words.push(value[0]);
  words.push(value[1]);
  if (numbers_in_key_) key.append(value, sizeof value);
}

// Computes two chains of products side by side, with two words in each step:
// the caller waits for the hash, and a single chain of one word per step would
// take four times as long.
[[gnu::hot]] uint64_t hash_of(at::ArrayRef<uint64_t> words) {
  constexpr auto mixed = [](uint64_t a, uint64_t b) {
    const __uint128_t product = __uint128_t(a) * b;
    return uint64_t(product) ^ uint64_t(product >> 64);
  };
  constexpr uint64_t kA = 0x9e3779b97f4a7c15u, kB = 0xd6e8feb86659fd93u,
                     kC = 0xa0761d6478bd642fu;
  const uint64_t* at = words.data();
  size_t left = words.size();
  uint64_t first = kA ^ left, second = kB;
  for (; left >= 4; left -= 4, at += 4) {
    first = mixed(at[0] ^ kB, at[1] ^ first);
    second = mixed(at[2] ^ kC, at[3] ^ second);
  }
  if (left >= 2) {
    first = mixed(at[0] ^ kB, at[1] ^ first);
    at += 2;
  }
  if (left % 2) second = mixed(*at ^ kC, kA ^ second);
  return mixed(first ^ kC, second ^ kB);
}

}  // namespace npu
