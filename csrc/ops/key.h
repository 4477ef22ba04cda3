// The arguments of one call, split in two: what decides shapes (the key) and
// what changes from call to call (the task's words).
//
// The key has the operator, the launch's state and its number of threads; then
// for each argument a tag and everything but addresses, scalars and floats; of
// those two it has the class (value_class.h). Words, in argument order:
//   npu tensor             1 word: address of element 0
//   0-dim cpu tensor       2 words: its bytes
//   Scalar                 2 words: its bytes
//   float                  1 word: its bytes
//   Generator?             2 words: seed, offset
//   lists                  their elements
//   anything else          none; it is in the key
//
// Generated wrappers and boxed calls write keys (boxed.h); key_parts.h reads
// them.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/OptionalArrayRef.h>
#include <string.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string_view>

#include "csrc/host/kernel_threads.h"
#include "csrc/ops/launch_state.h"
#include "csrc/ops/value_class.h"
#include "csrc/torch/generator.h"

namespace npu {

struct Op;

template <typename T>
concept ListOfTensors =
    std::is_same_v<T, at::TensorList> || std::is_same_v<T, at::ITensorListRef>;

// A growing list of words, which allocates nothing in the steady state.
class Words {
 public:
  Words() = default;
  ~Words() {
    if (begin_ != inline_) delete[] begin_;
  }
  Words(const Words&) = delete;

  void clear() { end_ = begin_; }
  void push(uint64_t word) {
    *room(1) = word;
    ++end_;
  }
  // Makes room for `count` more words and returns where to write them; end_at()
  // then says where they end.
  uint64_t* room(size_t count) {
    if (size_t(limit_ - end_) < count) [[unlikely]]
      grow(count);
    return end_;
  }
  void end_at(uint64_t* end) { end_ = end; }
  void append(const void* bytes, size_t count) {
    const size_t words = (count + 7) / 8;
    uint64_t* const at = room(words);
    if (count % 8) at[words - 1] = 0;
    memcpy(at, bytes, count);
    end_ = at + words;
  }
  void set(size_t i, uint64_t word) { begin_[i] = word; }
  const uint64_t* data() const { return begin_; }
  size_t size() const { return size_t(end_ - begin_); }
  at::ArrayRef<uint64_t> all() const { return {begin_, size()}; }

 private:
  static constexpr size_t kInline = 128;
  void grow(size_t more);

  uint64_t* begin_ = inline_;
  uint64_t* end_ = inline_;
  uint64_t* limit_ = inline_ + kInline;
  uint64_t inline_[kInline];
};

enum class Tag : uint8_t {
  kNone,
  kUndefined,
  kTensor,
  kHostScalar,
  kScalar,
  kFlag,  // a bool, an enumerator, or a list of bools
  kInt,
  kFloat,
  kInts,
  kFloats,
  kString,
  kGenerator,
  kList,
  kOverlap,  // how two tensors overlap (overlap.h)
};

uint64_t hash_of(at::ArrayRef<uint64_t> words);

class Key {
 public:
  // `numbers_in_key`: of the operator.
  void reset(const Op* op, bool numbers_in_key) {
    key.clear();
    words.clear();
    device = -1;
    named_device = -1;
    ordinary = true;
    random_word = -1;
    numbers_in_key_ = numbers_in_key;
    // An address has 47 bits, of which the lowest three are 0; the state has
    // 11, which leaves 9 for the number of threads.
    threads = std::min(launch_threads(), 511);
    key.push(reinterpret_cast<uint64_t>(op) >> 3 |
             (LaunchState::now() | uint64_t(threads) << LaunchState::kBits)
                 << kStateBit);
  }

  void add(const at::Tensor& t);
  // Add what t.reshape({-1, t.size(-1)}) of a contiguous tensor would add, and
  // t.t() of a matrix, without making those views.
  void add_rows(const at::Tensor& t);
  void add_transposed(const at::Tensor& t);
  void add(const std::optional<at::Tensor>& t) {
    if (t) {
      add(*t);
    } else {
      tag(Tag::kUndefined);
    }
  }
  void add(const ListOfTensors auto& list) {
    tag(Tag::kList, list.size());
    for (const at::Tensor& t : list) add(t);
  }
  void add(const c10::List<std::optional<at::Tensor>>& list) {
    tag(Tag::kList, list.size());
    for (const auto& element : list) {
      const std::optional<at::Tensor> t = element;
      add(t);
    }
  }
  void add(const at::Scalar& s);
  void add(at::ArrayRef<at::Scalar> list) {
    tag(Tag::kList, list.size());
    for (const at::Scalar& s : list) add(s);
  }
  // The generator's words are reserved by the caller once the device is known.
  void add(const std::optional<at::Generator>&) {
    tag(Tag::kGenerator);
    random_word = int(words.size());
    words.push(0);
    words.push(0);
  }

  template <typename T>
    requires std::is_same_v<T, bool> || std::is_enum_v<T>
  void add(T value) {
    tag(Tag::kFlag, uint64_t(value));
  }
  template <typename T>
    requires std::is_integral_v<T> && (!std::is_same_v<T, bool>)
  void add(T value) {
    tag(Tag::kInt);
    key.push(uint64_t(value));
  }
  void add(double value) {
    const uint64_t word = std::bit_cast<uint64_t>(value);
    tag(Tag::kFloat, value_class(value));
    words.push(word);
    if (numbers_in_key_) key.push(word);
  }
  void add(const c10::SymInt& value) {
    add(value.guard_int(__FILE__, __LINE__));
  }
  void add(at::IntArrayRef values) {
    tag(Tag::kInts, values.size());
    key.append(values.data(), values.size() * sizeof(int64_t));
  }
  void add(c10::SymIntArrayRef values) {
    tag(Tag::kInts, values.size());
    for (const c10::SymInt& v : values)
      key.push(uint64_t(v.guard_int(__FILE__, __LINE__)));
  }
  void add(at::ArrayRef<double> values) {
    tag(Tag::kFloats, values.size());
    key.append(values.data(), values.size() * sizeof(double));
  }
  template <size_t N>
  void add(const std::array<bool, N>& values) {
    uint64_t bits = 0;
    for (size_t i = 0; i < N; ++i) bits |= uint64_t(values[i]) << i;
    add_flags(bits, N);
  }
  void add(std::string_view text) {
    tag(Tag::kString, text.size());
    key.append(text.data(), text.size());
  }
  void add(c10::Device named) {
    add(named.type());
    if (named.type() == c10::kPrivateUse1) named_device = named.index();
  }
  // Of any type, or an optional list.
  template <typename Optional>
    requires requires(const Optional& value) { value.has_value(); }
  void add(const Optional& value) {
    if (value) {
      add(*value);
    } else {
      tag(Tag::kNone);
    }
  }

  // A list, whose elements the caller adds.
  void add_list(size_t elements) { tag(Tag::kList, elements); }

  // A list of flags.
  void add_flags(uint64_t bits, size_t flags) {
    tag(Tag::kFlag, bits | uint64_t(flags) << kFlagsBit);
  }
  static constexpr size_t kFlagsBit = 16;

  uint64_t hash() const { return hash_of(key.all()); }

  // The operator that a key's first word names.
  static const Op& op_in(uint64_t first) {
    constexpr uint64_t kAddress = (uint64_t(1) << kStateBit) - 1;
    return *reinterpret_cast<const Op*>((first & kAddress) << 3);
  }

  Words key;
  Words words;
  int device;            // of the npu tensors; -1: there is none
  int named_device;      // by a Device argument; -1: none, or the current one
  bool ordinary;         // false: only the slow path can take this call
  int random_word = -1;  // where the generator's two words are
  int threads;           // of the launch (kernel_threads.h)

 private:
  void add_npu(c10::TensorImpl* impl, at::IntArrayRef sizes,
               at::IntArrayRef strides);
  void tag(Tag t, uint64_t detail = 0) { key.push(uint64_t(t) | detail << 8); }

  static constexpr int kStateBit = 44;
  bool numbers_in_key_;

  // The list of a thread's keys, for calls that are made within calls
  // (KeyScope).
  friend class KeyScope;
  Key** free_ = nullptr;         // where the thread's next free key is noted
  std::unique_ptr<Key> deeper_;  // the next key, made at first use of this one
  bool nested_ = false;
  std::unique_ptr<Key> aside_;  // `deeper_` while the next call will be timed
  uint64_t entered_ = 0;        // ticks() at the entry of a timed call; else 0
};

// A key of the calling thread for one call. Making room in memory or in a queue
// may run Python (finalizers, signal handlers), which may make calls of its
// own: those get other keys.
class KeyScope {
 public:
  KeyScope() : key(enter()) {}
  ~KeyScope() { *key.free_ = &key; }
  KeyScope(const KeyScope&) = delete;

  // Whether another call of this thread is under way.
  bool nested() const { return key.nested_; }

  // ticks() at the entry of the key's call where it is timed; else 0.
  static uint64_t entered(const Key& key) { return key.entered_; }
  // Has the thread's next call with this key timed, by way of enter()'s slow
  // path, so that other calls do not ask whether they are timed.
  static void time_next(Key& key) {
    if (key.deeper_) key.aside_ = std::move(key.deeper_);
  }

  Key& key;

 private:
  static Key& enter();
};

}  // namespace npu
