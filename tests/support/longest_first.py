"""Runs the files that take longest first, so that no worker ends alone with one.

`tests/durations.json` has the seconds of each file that took more than one in a whole
run: what `make test` has left in `out/durations.json`, which `make nightly-docs`
copies.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest

RECORDED = Path(__file__).parents[1] / "durations.json"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seconds = json.loads(RECORDED.read_text())
    items.sort(key=lambda item: -seconds.get(_file(item.nodeid), 0.0))


class Durations:
    """Adds up what the tests of each file take, and writes it at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_file(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        rounded = {f: round(s, 1) for f, s in sorted(self._seconds.items()) if s > 1}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(rounded, indent=1) + "\n")


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0].removeprefix("tests/")
