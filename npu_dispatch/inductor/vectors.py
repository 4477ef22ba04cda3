"""Vector code for what Inductor's header computes one element after the other.

These are uniform random numbers, and masks that are bools in memory. Inductor's flags
keep compilers from making vector instructions of loops, so the text says them.
"""

from __future__ import annotations

import re

_VECTORS = """
template <typename T, int kCount>
struct NpuVector {
  typedef T type __attribute__((vector_size(kCount * sizeof(T))));
};
"""

_DRAWS = re.compile(
    r"for\([^{}]*\{\s*result\[offset_idx\] = "
    r"normalized_rand_cpu\((\w+), offset\[offset_idx\]\);\s*\}"
)
# The first word of Philox 4x32-10 at each offset, as at::Philox4_32 gives it. Products
# have 64 bits, so each multiplication is one of the even and one of the odd numbers.
_UNIFORM = """
template <typename T, int N>
void npu_uniform(uint32_t seed, const T (&offset)[N], float (&result)[N]) {
  using Words = typename NpuVector<uint32_t, N>::type;
  using Products = typename NpuVector<uint64_t, N / 2>::type;
  using Numbers = typename NpuVector<int32_t, N>::type;
  using Floats = typename NpuVector<float, N>::type;
  constexpr uint64_t low_bits = 0xffffffff;
  const auto multiply = [](Words x, uint64_t by, Words& high, Words& low) {
    const Products even = (Products(x) & low_bits) * by, odd = (Products(x) >> 32) * by;
    high = Words(even >> 32 | (odd & ~low_bits));
    low = Words((even & low_bits) | odd << 32);
  };
  Words x0, x1{}, x2{}, x3{}, a, b, a_high, b_high;
  for (int i = 0; i < N; ++i) x0[i] = uint32_t(offset[i]);
  uint32_t key0 = seed, key1 = 0;
  for (int round = 0; round < 10; ++round) {
    multiply(x0, 0xd2511f53, a_high, a);
    multiply(x2, 0xcd9e8d57, b_high, b);
    x0 = b_high ^ x1 ^ key0;
    x1 = b;
    x2 = a_high ^ x3 ^ key1;
    x3 = a;
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
  const Floats uniform =
      __builtin_convertvector(Numbers(x0 & 0x7fffffff), Floats) * 4.6566127342e-10f;
  for (int i = 0; i < N; ++i) result[i] = uniform[i];
}
"""

_LOADS = re.compile(r"at::vec::VecMask<(\w+),(\d+)>::from\((?=\w+_ptr)")
_STORES = re.compile(r"\b(tmp\w+)\.store\((?=\w+_ptr)")
# A mask of 32-bit elements has all bits of an element set, or none.
_MASKS = """
#if INDUCTOR_USE_VECTOR_TYPES()
template <typename T>
constexpr int kNpuLanes = sizeof(T) == 4 ? at::vec::Vectorized<T>::size() : 0;
template <typename T, int N, typename U>
auto npu_mask(const U* from, int64_t count = at::vec::VecMask<T, N>::size()) {
  if constexpr (std::is_same_v<U, bool> && N == 1 && kNpuLanes<T> > 0) {
    using Bytes = typename NpuVector<int8_t, kNpuLanes<T>>::type;
    using Words = typename NpuVector<int32_t, kNpuLanes<T>>::type;
    if (count == kNpuLanes<T>) {
      Bytes bytes;
      std::memcpy(&bytes, from, sizeof bytes);
      const Words mask = __builtin_convertvector(bytes, Words) != 0;
      return at::vec::VecMask<T, N>(at::vec::Vectorized<T>::loadu(&mask));
    }
  }
  return at::vec::VecMask<T, N>::from(from, int(count));
}
template <typename V, typename U, typename... Count>
void npu_store(V& value, U* to, Count... count) {
  value.store(to, count...);
}
template <typename T>
void npu_store(at::vec::VecMask<T, 1>& mask, bool* to,
               int64_t count = at::vec::Vectorized<T>::size()) {
  if constexpr (kNpuLanes<T> > 0) {
    using Bytes = typename NpuVector<int8_t, kNpuLanes<T>>::type;
    using Words = typename NpuVector<int32_t, kNpuLanes<T>>::type;
    if (count == kNpuLanes<T>) {
      Words words;
      at::vec::Vectorized<T>(mask).store(&words);
      const Bytes bytes = __builtin_convertvector(words, Bytes) & int8_t(1);
      std::memcpy(to, &bytes, sizeof bytes);
      return;
    }
  }
  mask.store(to, int(count));
}
#endif
"""


def with_vectors(source: str) -> str:
    """Return the kernel's text, changed so that it uses vectors for these."""
    include, rest = source.split("\n", 1)
    rest, draws = _DRAWS.subn(r"npu_uniform(\1, offset, result);", rest)
    helpers = _UNIFORM if draws else ""
    if "at::vec::VecMask<" in rest:
        rest = _LOADS.sub(r"npu_mask<\1,\2>(", rest)
        rest = _STORES.sub(r"npu_store(\1, ", rest)
        helpers += _MASKS
    return f"{include}{_VECTORS}{helpers}{rest}" if helpers else source
