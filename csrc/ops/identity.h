// Which calls are of one kind: they differ only in what does not change the
// verdict on the kernel (trial.h).
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "csrc/ops/key.h"

namespace npu {

// What two such calls have in common, made from a key. It has no addresses, no
// sizes and no numbers, with these exceptions: an integer that is small enough
// to name a dimension, the numbers of operators with NumbersInKey::kYes, and,
// unless the shapes come from the kernel's own code, the order of a tensor's
// dimensions in memory.
class Identity {
 public:
  // `key`: of an ordinary call.
  explicit Identity(at::ArrayRef<uint64_t> key);

  at::ArrayRef<uint64_t> words() const { return words_.all(); }
  // Whether the call's shapes come from the same code as its kernel's.
  bool shares_kernels_code() const { return shares_kernels_code_; }

 private:
  Words words_;
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
