#include "csrc/host/random_fill.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace npu {
namespace {

// Counters that are computed together. Word w of counter c is element w *
// kCounters + c of its group, so that each store is of neighbours.
constexpr int kCounters = 16, kWords = 4, kGroup = kCounters * kWords;

[[gnu::always_inline]] inline void philox(RandomSeed seed, uint64_t group,
                                          uint32_t (&words)[kGroup]) {
  uint32_t(&x0)[kCounters] = *reinterpret_cast<uint32_t(*)[kCounters]>(words);
  uint32_t(&x1)[kCounters] =
      *reinterpret_cast<uint32_t(*)[kCounters]>(words + kCounters);
  uint32_t(&x2)[kCounters] =
      *reinterpret_cast<uint32_t(*)[kCounters]>(words + 2 * kCounters);
  uint32_t(&x3)[kCounters] =
      *reinterpret_cast<uint32_t(*)[kCounters]>(words + 3 * kCounters);
  for (int c = 0; c < kCounters; ++c) {
    const uint64_t counter = group * kCounters + uint64_t(c);
    x0[c] = uint32_t(counter);
    x1[c] = uint32_t(counter >> 32);
    x2[c] = uint32_t(seed.offset);
    x3[c] = uint32_t(seed.offset >> 32);
  }
  uint32_t key0 = uint32_t(seed.seed), key1 = uint32_t(seed.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int c = 0; c < kCounters; ++c) {
      const uint64_t a = uint64_t{0xd2511f53} * x0[c];
      const uint64_t b = uint64_t{0xcd9e8d57} * x2[c];
      x0[c] = uint32_t(b >> 32) ^ x1[c] ^ key0;
      x1[c] = uint32_t(b);
      x2[c] = uint32_t(a >> 32) ^ x3[c] ^ key1;
      x3[c] = uint32_t(a);
    }
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
}

// Calls use(i, word) for each of n elements.
template <typename Use>
[[gnu::always_inline]] inline void each(RandomSeed seed, int64_t n,
                                        const Use& use) {
  alignas(64) uint32_t words[kGroup];
  int64_t done = 0;
  for (uint64_t group = 0; done < n; ++group, done += kGroup) {
    philox(seed, group, words);
    if (n - done >= kGroup)
      for (int i = 0; i < kGroup; ++i) use(done + i, words[i]);
    else
      for (int i = 0; i < int(n - done); ++i) use(done + i, words[i]);
  }
}

// The same with the widest vectors that the processor has.
#if defined(__x86_64__)
template <typename Use>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq")]] void each_in_512(
    RandomSeed seed, int64_t n, const Use& use) {
  each(seed, n, use);
}
template <typename Use>
[[gnu::target("avx2")]] void each_in_256(RandomSeed seed, int64_t n,
                                         const Use& use) {
  each(seed, n, use);
}
template <typename Use>
void each_in_vectors(RandomSeed seed, int64_t n, const Use& use) {
  static const int bits = __builtin_cpu_supports("avx512bw") &&
                                  __builtin_cpu_supports("avx512vl") &&
                                  __builtin_cpu_supports("avx512dq")
                              ? 512
                          : __builtin_cpu_supports("avx2") ? 256
                                                           : 128;
  if (bits == 512) return each_in_512(seed, n, use);
  if (bits == 256) return each_in_256(seed, n, use);
  each(seed, n, use);
}
#else
template <typename Use>
void each_in_vectors(RandomSeed seed, int64_t n, const Use& use) {
  each(seed, n, use);
}
#endif

// Whether cpu's generator gives its own first numbers: seeded_generator().
bool is_first(RandomSeed seed) {
  return !seed.offset && seed.seed <= UINT32_MAX;
}

bool has_no_gaps(const at::Tensor& t) {
  return t.layout() == at::kStrided && t.is_non_overlapping_and_dense() &&
         !t.is_neg() && !t.is_conj();
}

// A word is below the returned bound, which counts itself, with a probability
// of `keep`; `keep` is more than 0.
uint32_t bound_of(double keep) {
  const double bound = std::ceil(keep * 4294967296.0);
  return uint32_t(std::clamp(bound, 1.0, 4294967296.0) - 1);
}

}  // namespace

bool fill_bernoulli(at::Tensor& out, double keep, RandomSeed seed) {
  if (is_first(seed) || !has_no_gaps(out) || !(keep > 0)) return false;
  const uint32_t bound = bound_of(keep);
  const int64_t n = out.numel();
  if (out.scalar_type() == at::kBool) {
    bool* const to = out.data_ptr<bool>();
    each_in_vectors(seed, n, [to, bound](int64_t i, uint32_t word) {
      to[i] = word <= bound;
    });
    return true;
  }
  if (out.scalar_type() == at::kFloat) {
    float* const to = out.data_ptr<float>();
    each_in_vectors(seed, n, [to, bound](int64_t i, uint32_t word) {
      to[i] = word <= bound ? 1.0f : 0.0f;
    });
    return true;
  }
  return false;
}

bool fill_uniform(at::Tensor& out, double low, double high, RandomSeed seed) {
  if (is_first(seed) || !has_no_gaps(out) || out.scalar_type() != at::kFloat)
    return false;
  float* const to = out.data_ptr<float>();
  const float first = float(low), width = float(high) - float(low);
  // The sum may be rounded up to `high`, which is not in the range.
  const float last = std::nextafter(float(high), first);
  each_in_vectors(seed, out.numel(),
                  [to, first, width, last](int64_t i, uint32_t word) {
                    // 24 bits, as many as a float has.
                    const float value =
                        float(int32_t(word >> 8)) * 0x1p-24f * width + first;
                    to[i] = value < last ? value : last;
                  });
  return true;
}

}  // namespace npu
