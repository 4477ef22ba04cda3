#include "csrc/ops/key.h"

#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

// One word of description, then sizes, then strides unless contiguous.
void describe(Words& key, const c10::TensorImpl* impl, Tag tag) {
  const at::IntArrayRef sizes = impl->sizes();
  const bool contiguous = impl->is_contiguous();
  const uint8_t flags =
      flags_of(*impl) | (contiguous ? TensorFlags::kContiguous : 0);
  key.push(uint64_t(tag) | uint64_t(flags) << 8 |
           uint64_t(impl->dtype().toScalarType()) << 16 |
           uint64_t(sizes.size()) << 24);
  key.append(sizes.data(), sizes.size() * sizeof(int64_t));
  if (!contiguous)
    key.append(impl->strides().data(), sizes.size() * sizeof(int64_t));
}

}  // namespace

void Words::grow(size_t more) {
  size_t capacity = capacity_ * 2;
  while (capacity < size_ + more) capacity *= 2;
  uint64_t* data = new uint64_t[capacity];
  memcpy(data, data_, size_ * sizeof(uint64_t));
  if (data_ != inline_) delete[] data_;
  data_ = data;
  capacity_ = capacity;
}

void Key::add(const at::Tensor& t) {
  if (!t.defined()) {
    tag(Tag::kUndefined);
    return;
  }
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  if (is_npu(t)) [[likely]] {
    describe(key, impl, Tag::kTensor);
    const int index = impl->device().index();
    if (device != index) {
      if (device >= 0) ordinary = false;
      device = index;
    }
    words.push(reinterpret_cast<uint64_t>(impl->mutable_data()));
    return;
  }
  if (impl->device_type() == c10::kCPU && impl->dim() == 0 &&
      impl->layout() == c10::kStrided && impl->itemsize() <= 16 &&
      impl->has_storage()) {
    describe(key, impl, Tag::kHostScalar);
    uint64_t value[2] = {0, 0};
    memcpy(value, impl->data(), impl->itemsize());
    words.push(value[0]);
    words.push(value[1]);
    if (values_decide_) key.append(value, sizeof value);
    return;
  }
  ordinary = false;
}

void Key::add(const at::Scalar& s) {
  uint64_t value[2] = {0, 0};
  if (s.isComplex()) {
    const auto number = s.toComplexDouble();
    memcpy(value, &number, sizeof number);
  } else if (s.isFloatingPoint()) {
    value[0] = std::bit_cast<uint64_t>(s.toDouble());
  } else if (s.type() == at::kUInt64) {
    value[0] = s.toUInt64();
  } else {
    value[0] = uint64_t(s.toLong());
  }
  tag(Tag::kScalar, uint64_t(s.type()));
  words.push(value[0]);
  words.push(value[1]);
  if (values_decide_) key.append(value, sizeof value);
}

uint64_t Key::hash() const {
  uint64_t h = 0;
  const uint64_t* at = key.data();
  for (size_t i = 0; i < key.size(); ++i) {
    const __uint128_t product = __uint128_t(h ^ at[i]) * 0x9e3779b97f4a7c15u;
    h = (uint64_t(product) ^ uint64_t(product >> 64)) + i;
  }
  return h;
}

}  // namespace npu
