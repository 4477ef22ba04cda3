#include "csrc/host/random_fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "csrc/host/vectors.h"

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

// Calls use(i, word) for each of n elements, of which the first one belongs to
// `group`.
template <typename Use>
[[gnu::always_inline]] inline void each(RandomSeed seed, uint64_t group,
                                        int64_t n, const Use& use) {
  alignas(64) uint32_t words[kGroup];
  for (int64_t done = 0; done < n; ++group, done += kGroup) {
    philox(seed, group, words);
    if (n - done >= kGroup)
      for (int i = 0; i < kGroup; ++i) use(done + i, words[i]);
    else
      for (int i = 0; i < int(n - done); ++i) use(done + i, words[i]);
  }
}

template <typename Use>
void each_in_vectors(RandomSeed seed, int64_t n, const Use& use) {
  in_vectors([&] { each(seed, 0, n, use); });
}

// The natural logarithm of a number up to 1, by Cephes' polynomial.
[[gnu::always_inline]] inline float log_of(float x) {
  constexpr int32_t kRootOfHalf = 0x3f3504f3;
  const int32_t bits = std::bit_cast<int32_t>(x);
  const int32_t exponent = (bits - kRootOfHalf) >> 23;
  const float f = std::bit_cast<float>(bits - exponent * (1 << 23)) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const float square = f * f;
  return float(exponent) * 0.69314718056f +
         (f + (p * f * square - 0.5f * square));
}

// Two independent normal numbers from two words (Box and Muller): the first is
// their distance from 0, the second their direction, a part of a turn.
[[gnu::always_inline]] inline void normal(uint32_t distance, uint32_t direction,
                                          float& one, float& other) {
  // More than 0, at most 1. Signed numbers are converted faster.
  const float u = float(int32_t(distance >> 8)) * 0x1p-24f +
                  float(int32_t(distance & 0xff)) * 0x1p-32f + 0x1p-33f;
  const float r = std::sqrt(-2.0f * log_of(u));
  const uint32_t quarter = (direction + (1u << 29)) >> 30;
  const auto rest = int32_t(direction - (quarter << 30));
  const float x = float(rest) * (0x1p-30f * 1.57079632679f), z = x * x;
  const float s =
      ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z *
          x +
      x;
  const float c =
      ((2.4433157118e-5f * z - 1.3887316255e-3f) * z + 4.1666645683e-2f) * z *
          z -
      0.5f * z + 1.0f;
  // In quarters with an odd number the two change places.
  const uint32_t sine = std::bit_cast<uint32_t>(s),
                 cosine = std::bit_cast<uint32_t>(c),
                 change = (sine ^ cosine) & -(quarter & 1);
  const float first =
      std::bit_cast<float>(cosine ^ change ^ ((quarter + 1) & 2) << 30);
  const float second =
      std::bit_cast<float>(sine ^ change ^ (quarter & 2) << 30);
  one = r * first;
  other = r * second;
}

// Of each counter, the first two words give the elements of these two words,
// and so do the last two.
[[gnu::always_inline]] inline void normal_group(const uint32_t* words,
                                                float mean, float deviation,
                                                float (&to)[kGroup]) {
  for (int c = 0; c < kCounters; ++c)
    normal(words[c], words[c + kCounters], to[c], to[c + kCounters]);
  for (int c = 2 * kCounters; c < 3 * kCounters; ++c)
    normal(words[c], words[c + kCounters], to[c], to[c + kCounters]);
  for (float& each : to) each = each * deviation + mean;
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
  if (seed.draws_as_cpu() || !has_no_gaps(out) || !(keep > 0)) return false;
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
  if (seed.draws_as_cpu() || !has_no_gaps(out) ||
      out.scalar_type() != at::kFloat)
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

bool fill_normal(at::Tensor& out, double mean, double deviation,
                 RandomSeed seed) {
  if (seed.draws_as_cpu() || !has_no_gaps(out) ||
      out.scalar_type() != at::kFloat || !(deviation >= 0))
    return false;
  float* const to = out.data_ptr<float>();
  const int64_t n = out.numel();
  const float middle = float(mean), width = float(deviation);
  in_vectors([=] {
    // Drawn before they are used: the compiler computes neither in vectors
    // where they are one loop.
    constexpr int kGroups = 16;
    alignas(64) uint32_t words[kGroups * kGroup];
    alignas(64) float numbers[kGroup];
    for (int64_t done = 0; done < n;) {
      const int64_t left = (n - done + kGroup - 1) / kGroup;  // groups
      const int64_t more = std::min<int64_t>(left, kGroups) * kGroup;
      uint32_t* const drawn = words;
      each(seed, uint64_t(done) / kGroup, more,
           [drawn](int64_t i, uint32_t word) { drawn[i] = word; });
      for (int group = 0; group < kGroups && done < n; ++group) {
        const int64_t some = std::min<int64_t>(n - done, kGroup);
        normal_group(words + group * kGroup, middle, width, numbers);
        memcpy(to + done, numbers, size_t(some) * sizeof(float));
        done += some;
      }
    }
  });
  return true;
}

}  // namespace npu
