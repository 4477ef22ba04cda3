"""The C++ text that makes a generated function the code of a task."""

from __future__ import annotations

import re

from npu_dispatch.inductor.checked_loops import THROWS, with_noted_failures

__all__ = ["with_checked_division", "with_entry"]

# The words of a task are the function's arguments, in order.
_ENTRY = """
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>
namespace {{
template <typename T>
T npu_argument(uint64_t word) {{
  if constexpr (std::is_pointer_v<T>) {{
    return reinterpret_cast<T>(word);
  }} else if constexpr (std::is_integral_v<T>) {{
    return static_cast<T>(word);
  }} else {{
    T value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }}
}}
template <typename... A, size_t... I>
void npu_call(void (*f)(A...), const uint64_t* words, std::index_sequence<I...>) {{
  f(npu_argument<A>(words[I])...);
}}
template <typename... A>
void npu_call(void (*f)(A...), const uint64_t* words) {{
  npu_call(f, words, std::index_sequence_for<A...>());
}}
}}
extern "C" int npu_entry(const uint64_t* words, char* error) {{
  {lock}
  try {{
    npu_call(&kernel, words);
    return 0;
  }} catch (const std::exception& e) {{
    std::snprintf(error, 2048, "%s", e.what());
    return 1;
  }}
}}
"""

# Functions of Inductor's header that note a division by zero in the variable
# that the generated function points at its own flag.
_DIVIDES = re.compile(r"\b(floor_divide_integral|remainder_integral|mod|npu_divide)\(")
_FLAG_LINE = re.compile(r"^.*\binductor_cpu_\w*integer_div_error\w*\b.*\n", re.M)
_SERIALISED = "static std::mutex one_at_a_time;\n  std::lock_guard lock(one_at_a_time);"

# Inductor writes a truncating division as C++ has it, and there the processor ends
# the process where the divisor is zero.
_DIVISION = re.compile(r"= (\w+) / ([^;\n]+);")
_CHECKED = """
template <typename T, typename U>
auto npu_divide(const T& a, const U& b) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<U>) {
    using C = std::common_type_t<T, U>;
    if (b == 0) {
      inductor_cpu_note_integer_div_by_zero();
      return C(0);
    }
    if (std::is_signed_v<C> && C(b) == C(-1)) return C(0 - uint64_t(a));
    return C(C(a) / C(b));
  } else {
    return a / b;
  }
}
#if INDUCTOR_USE_VECTOR_TYPES()
template <typename Vec, typename T>
Vec npu_divide_each(const Vec& a, const Vec& b) {
  alignas(64) T x[Vec::size()], y[Vec::size()];
  a.store(x);
  b.store(y);
  for (int i = 0; i < Vec::size(); ++i) x[i] = npu_divide(x[i], y[i]);
  return Vec::loadu(x);
}
template <typename T>
auto npu_divide(const at::vec::Vectorized<T>& a, const at::vec::Vectorized<T>& b) {
  return npu_divide_each<at::vec::Vectorized<T>, T>(a, b);
}
template <typename T, int N>
auto npu_divide(const at::vec::VectorizedN<T, N>& a,
                const at::vec::VectorizedN<T, N>& b) {
  return npu_divide_each<at::vec::VectorizedN<T, N>, T>(a, b);
}
#endif
"""


def with_checked_division(source: str) -> str:
    """Return the kernel's text, changed so that it notes divisors that are zero."""
    include, rest = source.split("\n", 1)
    return include + _CHECKED + _DIVISION.sub(r"= npu_divide(\1, \2);", rest)


def with_entry(source: str) -> str:
    """Return the text of `kernel` with its entry.

    The variable for a division by zero exists once per library (runtime.py exports
    the entry only), so two launchers must not be inside one kernel that divides.
    Kernels that do not divide have no such variable.
    """
    if THROWS.search(source):
        source = with_noted_failures(source)
    if _DIVIDES.search(source):
        return source + _ENTRY.format(lock=_SERIALISED)
    return _FLAG_LINE.sub("", source) + _ENTRY.format(lock="")
