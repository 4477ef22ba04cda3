// Reads a key back. Whatever has to know what a call consists of (its identity,
// its plan, the frame that runs it) is made of the parts that are found here.
#pragma once

#include "csrc/ops/key.h"
#include "csrc/ops/op.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {

// An argument, an element of an argument that is a list, or how two tensors
// overlap.
struct Part {
  uint64_t head;       // its first word
  const uint64_t* at;  // the words behind it
  int argument;        // by position in the schema
  int element;         // of the list; -1: it is the argument itself
  uint32_t word;       // where its words begin in a task

  Tag tag() const { return Tag(head & 0xff); }
  int64_t detail() const { return int64_t(head) >> 8; }
  // Its words behind the first. `numbers_in_key`: of the operator.
  at::ArrayRef<uint64_t> words(bool numbers_in_key) const;
  uint32_t words_in_task() const;

  // Of a tensor.
  uint8_t flags() const {
    return uint8_t(head >> 8) & ~TensorFlags::kContiguous;
  }
  at::ScalarType dtype() const { return at::ScalarType(head >> 16 & 0xff); }
  size_t rank() const { return head >> 32; }
  at::IntArrayRef sizes() const { return {numbers(), rank()}; }
  // Whether its strides are those of a new tensor; else they are in the key.
  bool is_default() const { return head >> 8 & TensorFlags::kContiguous; }
  at::IntArrayRef strides() const { return {numbers() + rank(), rank()}; }

  const int64_t* numbers() const {
    return reinterpret_cast<const int64_t*>(at);
  }

  // Of an overlap: whether the two tensors are one, and the arguments in which
  // they are.
  bool one_tensor() const { return head >> 8 & 1; }
  size_t written() const { return head >> 16 & 0xffffff; }
  size_t other() const { return head >> 40; }
};

inline at::ArrayRef<uint64_t> Part::words(bool numbers_in_key) const {
  switch (tag()) {
    case Tag::kTensor:
      return {at, is_default() ? rank() : 2 * rank()};
    case Tag::kHostScalar:
    case Tag::kScalar:
      return {at, size_t(numbers_in_key ? 2 : 0)};
    case Tag::kFloat:
      return {at, size_t(numbers_in_key)};
    case Tag::kInt:
      return {at, 1};
    case Tag::kInts:
    case Tag::kFloats:
      return {at, size_t(detail())};
    case Tag::kString:
      return {at, size_t(detail() + 7) / 8};
    case Tag::kOverlap:
      return {at, 2};
    default:
      return {};
  }
}

inline uint32_t Part::words_in_task() const {
  switch (tag()) {
    case Tag::kTensor:
    case Tag::kFloat:
      return 1;
    case Tag::kHostScalar:
    case Tag::kScalar:
    case Tag::kGenerator:
      return 2;
    default:
      return 0;
  }
}

// Calls visit() with every part of a key, in order. Returns how many words a
// task of the call has.
template <typename Visit>
uint32_t read_key(at::ArrayRef<uint64_t> key, Visit visit) {
  const bool numbers_in_key = Key::op_in(key[0]).numbers == NumbersInKey::kYes;
  Part part{0, nullptr, -1, -1, 0};
  int64_t in_list = 0;  // how many elements of the list are left
  for (size_t i = 1; i < key.size();) {
    part.head = key[i++];
    part.at = key.data() + i;
    if (in_list > 0) {
      ++part.element;
      --in_list;
    } else {
      ++part.argument;
      part.element = -1;
    }
    if (part.tag() == Tag::kList) in_list = part.detail();
    i += part.words(numbers_in_key).size();
    visit(std::as_const(part));
    part.word += part.words_in_task();
  }
  return part.word;
}

}  // namespace npu
