#include "csrc/ops/identity.h"

#include <utility>

#include "csrc/ops/key_parts.h"
#include "csrc/ops/stride_order.h"

namespace npu {
namespace {

bool has_gaps(const Part& part) {
  if (part.is_default()) return false;
  const at::IntArrayRef sizes = part.sizes(), strides = part.strides();
  if (std::count(sizes.begin(), sizes.end(), 0)) return false;
  const auto dense = dense_strides(sizes, stride_order(sizes, strides));
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    if (sizes[dim] > 1 && strides[dim] != dense[dim]) return true;
  return false;
}

// A cpu kernel first converts operands to the type that it computes in, which
// closes gaps in them, so such calls do not count.
bool shapes_are_the_kernels(at::ArrayRef<uint64_t> key) {
  const Meta meta = Key::op_in(key[0]).meta;
  if (meta != Meta::kSharesKernelsCode && meta != Meta::kElementWise)
    return false;
  std::optional<at::ScalarType> type;
  bool converted = false, gaps = false;
  read_key(key, [&](const Part& part) {
    if (part.tag() != Tag::kTensor) return;
    converted = converted || (type && *type != part.dtype()) ||
                c10::isIntegralType(part.dtype(), /*includeBool=*/true);
    gaps = gaps || has_gaps(part);
    type = part.dtype();
  });
  return !(converted && gaps);
}

// Notes which dimensions have this size; 32 of them and `more` in a word.
void add_each(Words& to, uint64_t more, at::IntArrayRef sizes, int64_t size) {
  uint64_t found = more;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (dim && dim % 32 == 0) to.push(std::exchange(found, 0));
    found |= uint64_t(sizes[dim] == size) << (1 + dim % 32);
  }
  to.push(found);
}

// Everything about the layout of a tensor that may decide the order of a
// result's dimensions in memory. Many kernels view a tensor as one row of
// elements, or refuse it, which depends on the gaps between its dimensions.
void add_layout(Words& to, const Part& part) {
  const at::IntArrayRef sizes = part.sizes();
  add_each(to, part.is_default(), sizes, 1);
  if (part.is_default()) return;
  const at::IntArrayRef strides = part.strides();
  const StrideOrder order = stride_order(sizes, strides);
  int64_t expected = 1;  // of the next dimension outwards
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    const size_t dim = size_t(*at);
    to.push(uint64_t(dim) << 2 | uint64_t(strides[dim] == 0) << 1 |
            uint64_t(strides[dim] == expected));
    if (sizes[dim] > 1) expected = strides[dim] * sizes[dim];
  }
}

// The part of an integer that may decide the order of a result's dimensions: it
// may name a dimension.
uint64_t as_dimension(int64_t n) {
  constexpr int64_t kDimensions = 8;
  return uint64_t(n >= -kDimensions && n < kDimensions ? n : kDimensions);
}

}  // namespace

Identity::Identity(at::ArrayRef<uint64_t> key)
    : shares_kernels_code_(shapes_are_the_kernels(key)) {
  const bool has_shapes = Key::op_in(key[0]).schema().shapes;
  words_.push(key[0]);
  words_.push(shares_kernels_code_);
  read_key(key, [&](const Part& part) {
    switch (part.tag()) {
      case Tag::kTensor:
        words_.push(part.head & ~(uint64_t(TensorFlags::kContiguous) << 8));
        if (!part.rank()) return;
        // Which empty tensors a kernel refuses depends on the dimension that it
        // works along.
        add_each(words_, 0, part.sizes(), 0);
        if (!shares_kernels_code_) add_layout(words_, part);
        return;
      case Tag::kInt:
        words_.push(part.head);
        // A meta kernel may overlook what the kernel refuses.
        words_.push(has_shapes ? as_dimension(*part.numbers()) : *part.at);
        return;
      case Tag::kInts:
        words_.push(part.head);
        for (int64_t i = 0; i < part.detail(); ++i)
          words_.push(as_dimension(part.numbers()[i]));
        return;
      case Tag::kString:
        // A text says what is done and not how much.
        words_.push(part.head);
        words_.append(part.at, size_t(part.detail()));
        return;
      case Tag::kOverlap:
        words_.push(part.head);
        // Which element of a list, and whether both begin at one place.
        words_.push(part.at[0] << 1 | (part.at[1] == 0));
        return;
      default:
        words_.push(part.head);
    }
  });
  if (Key::op_in(key[0]).numbers != NumbersInKey::kYes) return;
  read_key(key, [&](const Part& part) {
    if (part.tag() != Tag::kScalar && part.tag() != Tag::kFloat &&
        part.tag() != Tag::kHostScalar)
      return;
    for (const uint64_t word : part.words(/*numbers_in_key=*/true))
      words_.push(word);
  });
}

}  // namespace npu
