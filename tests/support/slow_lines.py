"""A pytest plugin: the host is late at each line of a test.

Loaded with `-p slow_lines`. Between any two lines the device gets everything
done: a test fails that takes it for granted that queued work is still under way,
or that a failure is not known yet.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
LINE_S = 0.002
TEST_S = 2.0  # for a test that repeats its lines often


class _Slow:
    def __init__(self) -> None:
        self.left = TEST_S

    def call(self, frame: FrameType, event: str, arg: object) -> Any:
        path = Path(frame.f_code.co_filename)
        if path.parent == TESTS / "support" or not path.is_relative_to(TESTS):
            return None
        return self.line

    def line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line" and self.left > 0:
            self.left -= LINE_S
            time.sleep(LINE_S)
        return self.line


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(_Slow().call)
    try:
        return (yield)
    finally:
        sys.settrace(before)
