"""Parallel loops that check what they read, such as an index.

An exception must not leave a parallel loop, as that would end the process. So an
iteration that fails notes its exception, and the region raises what a single thread
would have met first.
"""

from __future__ import annotations

import re

__all__ = ["THROWS", "with_noted_failures"]

THROWS = re.compile(r"\bTORCH_CHECK\(|\bthrow\b")

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


def with_noted_failures(source: str) -> str:
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
            fails = THROWS.search("\n".join(lines[opening:closing])) is not None
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
