"""What pytest does with --npu-schedules, --npu-sanitize, --npu-sync and others.

pytest_npu_dispatch defines the options, and loads this when one is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from _pytest.unittest import TestCaseFunction

_SEED = pytest.StashKey[int]()
_LEFT = "npu_error_left"  # a property of reports, which pytest-xdist passes on


def _seeds(config: pytest.Config) -> range:
    given = config.getoption("--npu-seed")
    first = 1 if given is None else given
    return range(first, first + config.getoption("--npu-schedules"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if seeds := _seeds(metafunc.config):
        ids = [f"npu-seed={seed}" for seed in seeds]
        metafunc.parametrize("_npu_schedule", seeds, ids=ids, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Repeat methods of unittest's classes, which cannot be parametrised."""
    if seeds := _seeds(config):
        items[:] = [copy for item in items for copy in _per_schedule(item, seeds)]


class _ScheduledMethod(TestCaseFunction):
    """A method of a unittest class whose item has a name of its own."""

    def _getinstance(self) -> object:
        return self.cls(self.originalname)


def _per_schedule(item: pytest.Item, seeds: range) -> list[pytest.Item]:
    if not isinstance(item, TestCaseFunction):
        return [item]
    copies: list[pytest.Item] = []
    for seed in seeds:
        copy = _ScheduledMethod.from_parent(
            item.parent,
            name=f"{item.name}[npu-seed={seed}]",
            callobj=item.obj,
        )
        copy.originalname = item.name  # given above, it would be the item's name
        copy.stash[_SEED] = seed
        copies.append(copy)
    return copies


def pytest_report_collectionfinish(
    config: pytest.Config, items: list[pytest.Item]
) -> str | None:
    others = sum(not isinstance(item, pytest.Function) for item in items)
    if not others or not _seeds(config):
        return None
    return f"npu_dispatch: {others} items are no Python functions: no schedules"


@pytest.fixture(autouse=True)
def _npu_schedule(request: pytest.FixtureRequest) -> Iterator[None]:
    seed = getattr(request, "param", request.node.stash.get(_SEED, None))
    if seed is None:
        yield
        return
    from npu_dispatch import testing

    length = request.config.getoption("--npu-length")
    with testing.schedule(seed, length=testing.LENGTH if length is None else length):
        yield


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("--npu-sanitize"):
        try:
            _switch_sanitizer(session.config, on=True)
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"--npu-suppressions: {error}") from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    if item.config.getoption("--npu-sanitize"):
        _switch_sanitizer(item.config, on=not item.get_closest_marker("npu_races"))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[Any]:
    with _findings_fail(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    with _findings_fail(item), ExitStack() as stack:
        if mode := item.config.getoption("--npu-sync"):
            stack.enter_context(_sync_debug(mode))
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[Any]:
    try:
        with _findings_fail(item):
            return (yield)
    finally:
        if item.config.getoption("--npu-clear-errors"):
            _clear_errors(item)


def _clear_errors(item: pytest.Item) -> None:
    """Let streams that the test left failed take the next test's work."""
    from npu_dispatch import npu

    if not npu.is_initialized():
        return
    for index in range(npu.device_count()):
        try:
            npu.synchronize(index)
        except RuntimeError as error:
            npu.reset_device(index)
            said = str(error).strip().partition("\n")[0]
            item.user_properties.append((_LEFT, f"npu:{index}: {said}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = [
        f"{report.nodeid}: {value}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "teardown"
        for name, value in report.user_properties
        if name == _LEFT
    ]
    if left:
        terminalreporter.section("npu: tests that left errors of their tasks")
        for line in left:
            terminalreporter.line(line)


def _switch_sanitizer(config: pytest.Config, *, on: bool) -> None:
    """Switch it. It stays on between tests: the next may race with what one queued."""
    from npu_dispatch.npu import _sanitizer

    if on:
        _sanitizer.enable_npu_sanitizer("raise", config.getoption("--npu-suppressions"))
    else:
        _sanitizer.disable_npu_sanitizer()


@contextmanager
def _findings_fail(item: pytest.Item) -> Iterator[None]:
    """Raise what was found in this phase, if its exception did not reach the test.

    A thread, a `try` or gather() may have kept the exception.
    """
    if not item.config.getoption("--npu-sanitize"):
        yield
        return
    from npu_dispatch.npu import _sanitizer

    if not _sanitizer.is_enabled():  # npu_races
        yield
        return
    before = {report.key: report.count for report in _sanitizer.reports()}
    yield
    found = [r for r in _sanitizer.reports() if r.count > before.get(r.key, 0)]
    if found:
        raise _sanitizer.NPUSanitizerErrors(found)


@contextmanager
def _sync_debug(mode: str) -> Iterator[None]:
    """Watch the test's own waits, in all of its threads, but not its fixtures'."""
    from npu_dispatch.npu.debugging.host_waits import (
        get_sync_debug_mode,
        set_process_rule,
    )

    before = get_sync_debug_mode()
    set_process_rule(mode)
    try:
        yield
    finally:
        set_process_rule(before)
