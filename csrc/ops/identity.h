// Which calls are of one kind: they differ only in what changes neither the
// verdict on the kernel (trial.h) nor the frame that runs them (family.h).
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "csrc/ops/key.h"

namespace npu {

// The part of a key that two such calls have in common: without addresses,
// sizes and values; of integers what may name a dimension; of a layout the
// order of its dimensions, unless the shapes come from the kernel's own code.
class Identity {
 public:
  // `key`: of an ordinary call.
  explicit Identity(at::ArrayRef<uint64_t> key);

  // What the frame depends on.
  at::ArrayRef<uint64_t> of_frame() const {
    return words_.all().slice(0, of_frame_);
  }
  // What the verdict depends on: values, too, where these decide.
  at::ArrayRef<uint64_t> of_verdict() const { return words_.all(); }
  // Whether the call's shapes come from the same code as its kernel's.
  bool shares_kernels_code() const { return shares_kernels_code_; }

 private:
  Words words_;
  size_t of_frame_;
  bool shares_kernels_code_;
};

struct HashOfWords {
  using is_transparent = void;
  size_t operator()(at::ArrayRef<uint64_t> words) const {
    return hash_of(words);
  }
};
struct SameWords {
  using is_transparent = void;
  bool operator()(at::ArrayRef<uint64_t> a, at::ArrayRef<uint64_t> b) const {
    return a == b;
  }
};
template <typename T>
using ByWords =
    std::unordered_map<std::vector<uint64_t>, T, HashOfWords, SameWords>;

}  // namespace npu
