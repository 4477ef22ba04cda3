// Loops with the widest vectors that the processor has, wider than those that
// every processor has for which this is built.
#pragma once

namespace npu {

#if defined(__x86_64__)
template <typename Body>
[[gnu::flatten, gnu::target("avx512f,avx512bw,avx512vl,avx512dq")]] void
in_vectors_of_512(const Body& body) {
  body();
}
template <typename Body>
[[gnu::flatten, gnu::target("avx2")]] void in_vectors_of_256(const Body& body) {
  body();
}
// Calls body().
template <typename Body>
void in_vectors(const Body& body) {
  static const int bits = __builtin_cpu_supports("avx512bw") &&
                                  __builtin_cpu_supports("avx512vl") &&
                                  __builtin_cpu_supports("avx512dq")
                              ? 512
                          : __builtin_cpu_supports("avx2") ? 256
                                                           : 128;
  if (bits == 512) return in_vectors_of_512(body);
  if (bits == 256) return in_vectors_of_256(body);
  body();
}
#else
template <typename Body>
void in_vectors(const Body& body) {
  body();
}
#endif

}  // namespace npu
