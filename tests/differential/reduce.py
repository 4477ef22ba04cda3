"""Makes a sequence of programs shorter while it still shows the same difference.

Each attempt runs in a process of its own. Shrinking where the difference was
found would not do: what a call does may depend on the calls before it, which is
what is looked for here, and each attempt would be one more of them.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from tests.differential.check import check
from tests.search.children import Died, call

Programs = list[list[str]]
Test = Callable[[list], bool]
_WRAPPED = [
    re.compile(r"^with on\(\d, '\w+'\): (?P<inner>.*)$"),
    re.compile(r"^in_thread\(\d, '(?P<inner>.*)'\)$"),
    re.compile(r'^in_thread\(\d, "(?P<inner>.*)"\)$'),
]


def shorter(programs: Programs, kind: str, plant: str | None = None) -> Programs | None:
    """Return as few steps as show a difference of this kind, or None if none do."""

    def shows(attempt: Programs) -> bool:
        found = call(check, attempt, plant, seconds=60)
        if isinstance(found, Died):
            return kind == "died"
        return found is not None and found.kind == kind

    last = programs[-1]
    if shows([last]):
        programs = [last]
    elif not shows(programs):
        return None
    else:
        programs = [*without(programs[:-1], lambda p: shows([*p, last])), last]
    for i in reversed(range(len(programs))):
        before, after = programs[:i], programs[i + 1 :]

        def still(steps: list[str], b: Programs = before, a: Programs = after) -> bool:
            return shows([*b, steps, *a])

        steps = without(programs[i], still)
        for number, step in enumerate(steps):
            for simple in _simpler(step):
                attempt = [*steps[:number], simple, *steps[number + 1 :]]
                if still(attempt):
                    steps = attempt
                    break
        programs[i] = steps
    return [steps for steps in programs if steps]


def without(items: Sequence, test: Test) -> list:
    """Leave out what the test does not need, large parts first."""
    items = list(items)
    size = max(len(items) // 2, 1)
    while True:
        start = len(items)
        while start > 0:
            start = max(start - size, 0)
            attempt = items[:start] + items[start + size :]
            if len(attempt) < len(items) and test(attempt):
                items = attempt
        if size == 1:
            return items
        size //= 2


def _simpler(step: str) -> Iterator[str]:
    inner = step
    for pattern in (*_WRAPPED, *_WRAPPED):
        if match := pattern.match(inner):
            inner = match["inner"].replace("\\'", "'")
    if inner != step:
        yield inner
