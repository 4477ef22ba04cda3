"""The C++ text that makes a generated function the code of a task."""

from __future__ import annotations

import re

# Parallel loops that check what they read, such as an index: an exception must not
# leave one, as that would end the process. So an iteration that fails notes its
# exception, and the region raises what a single thread would have met first.
_THROWS = re.compile(r"\bTORCH_CHECK\(|\bthrow\b")

# Threads take their iterations in the order of their numbers (a static schedule), and
# what a later loop reads may depend on an earlier one that failed.
_NOTES = """
#include <atomic>
#include <climits>
#include <exception>
#include <mutex>
struct NpuNotedFailure {
  std::mutex mutex;
  std::atomic<int> loop{INT_MAX};
  int thread = INT_MAX;
  std::exception_ptr error;
  bool before(int now) const { return loop.load(std::memory_order_relaxed) < now; }
  void note(int in, int of) {
    std::lock_guard lock(mutex);
    const int first = loop.load(std::memory_order_relaxed);
    if (in > first || (in == first && of >= thread)) return;
    loop.store(in, std::memory_order_relaxed);  // read after the loop's barrier
    thread = of;
    error = std::current_exception();
  }
  void raise() const {
    if (error) std::rethrow_exception(error);
  }
};
"""
_KERNEL = re.compile(r'^extern "C"')
_REGION = re.compile(r"#pragma omp parallel\b")
_SHARED = re.compile(r"#pragma omp (for|single)\b(?:.*collapse\((\d+)\))?")


def _opening(lines: list[str], at: int) -> int:
    """Return the next line that opens a block."""
    while lines[at].strip() != "{":
        at += 1
    return at


def _closing(lines: list[str], opening: int) -> int:
    """Return the line that closes the block."""
    depth = 0
    for at in range(opening, len(lines)):
        depth += lines[at].count("{") - lines[at].count("}")
        if depth == 0:
            return at
    raise IndexError(opening)


def _body(lines: list[str], pragma: int, loops: int) -> tuple[int, int]:
    """Return the lines around what one iteration of the innermost loop does."""
    at = pragma
    for _ in range(loops):
        at += 1
        while not lines[at].strip().startswith("for("):
            at += 1
    opening = _opening(lines, at)
    return opening, _closing(lines, opening)


def _with_noted_failures(source: str) -> str:
    """Return the kernel's text, changed so that its parallel loops may fail.

    An IndexError: the text has another form than Inductor's.
    """
    if not _REGION.search(source):
        return source
    lines = source.split("\n")
    before: dict[int, str] = {}  # text to be put in front of a line
    kernel = next(i for i, line in enumerate(lines) if _KERNEL.match(line))
    before[_opening(lines, kernel) + 1] = "NpuNotedFailure npu_failure;\n"
    failing = False  # whether a loop so far may have failed
    for at, line in enumerate(lines):
        if _REGION.search(line):
            end = _closing(lines, _opening(lines, at)) + 1
            before[end] = "npu_failure.raise();\n" + before.get(end, "")
        elif found := _SHARED.search(line):
            kind, collapsed = found.groups()
            loops = int(collapsed or 1) if kind == "for" else 0
            opening, closing = _body(lines, at, loops)
            fails = _THROWS.search("\n".join(lines[opening:closing])) is not None
            failing = failing or fails
            if not failing:
                continue
            head, tail = f"if (!npu_failure.before({at})) {{\n", "}\n"
            if fails:
                head += "try {\n"
                note = f"npu_failure.note({at}, omp_get_thread_num());"
                tail = f"}} catch (...) {{ {note} }}\n}}\n"
            before[opening + 1] = head + before.get(opening + 1, "")
            before[closing] = before.get(closing, "") + tail
    include = next(i for i, line in enumerate(lines) if line.startswith("#include"))
    before[include + 1] = _NOTES + before.get(include + 1, "")
    return "\n".join(before.get(i, "") + line for i, line in enumerate(lines))


# The words of a task are the function's arguments, in order.
_ENTRY = """
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <tuple>
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
template <typename... A>
void npu_call(void (*f)(A...), const uint64_t* words) {{
  std::apply(f, std::tuple<A...>{{npu_argument<A>(*words++)...}});
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
template <typename Vec, typename T = typename Vec::value_type, int N = Vec::size()>
Vec npu_divide(const Vec& a, const Vec& b) {
  alignas(64) T x[N], y[N];
  a.store(x);
  b.store(y);
  for (int i = 0; i < N; ++i) x[i] = npu_divide(x[i], y[i]);
  return Vec::loadu(x);
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
    if _THROWS.search(source):
        source = _with_noted_failures(source)
    if _DIVIDES.search(source):
        return source + _ENTRY.format(lock=_SERIALISED)
    return _FLAG_LINE.sub("", source) + _ENTRY.format(lock="")
