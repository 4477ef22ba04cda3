"""A plugin for pytest: which test reaches which mutants, in any of its processes.

NPU_MUTANTS_REACHED is the file in which switch.h notes them, NPU_MUTANTS_TESTS
the one that gets the answer: for each test its seconds, whether it passed, and the
numbers it reached. What importing reaches is there under no name.
"""

import json
import mmap
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest


class Recorder:
    def __init__(self, notes: Path, answer: Path) -> None:
        with notes.open("r+b") as file:
            self.notes = mmap.mmap(file.fileno(), 0)
        self.answer = answer
        self.tests: dict[str, dict[str, object]] = {}

    def _take(self) -> list[int]:
        reached = [n for n, byte in enumerate(self.notes[:]) if byte]
        self.notes[:] = bytes(len(self.notes))
        return reached

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item
    ) -> Generator[None, object, object]:
        if not self.tests:
            self.tests[""] = {"seconds": 0.0, "passed": True, "reached": self._take()}
        test = self.tests[item.nodeid] = {"passed": True}
        began = time.monotonic()
        result = yield
        test.update(seconds=time.monotonic() - began, reached=self._take())
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests[report.nodeid]["passed"] = False

    def pytest_sessionfinish(self) -> None:
        self.answer.write_text(json.dumps(self.tests))


def pytest_configure(config: pytest.Config) -> None:
    notes, answer = (
        Path(os.environ[f"NPU_MUTANTS_{name}"]) for name in ("REACHED", "TESTS")
    )
    config.pluginmanager.register(Recorder(notes, answer))
