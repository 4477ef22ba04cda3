"""The end of a test that nothing else ends: a limit that its failure leaves alone.

pytest-timeout lets go of its limit when a test fails, and it interrupts Python
only. This ends the whole process, with every thread's traceback, when a test
has not ended long after its limit: also in its teardown, also in C++.
"""

import faulthandler
import os
from collections.abc import Iterator

import compiler_sanitizer
import pytest

# What pytest-timeout needs to say more than we do; and what a teardown may take.
GRACE_S = 60
_stderr = pytest.StashKey[int]()  # the real one, whatever a test captures


def limit_of(item: pytest.Item) -> float:
    """Return the test's limit in seconds; 0: none."""
    marker = item.get_closest_marker("timeout")
    if marker:
        return float(marker.args[0] if marker.args else marker.kwargs.get("timeout", 0))
    given = item.config.getoption("timeout", None)
    return float(item.config.getini("timeout") or 0 if given is None else given)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # nothing is captured yet
    compiler_sanitizer.report_to(config.stash[_stderr])


def _watch(item: pytest.Item) -> None:
    limit = limit_of(item)
    if not limit or item.config.getoption("usepdb", default=False):
        return
    faulthandler.dump_traceback_later(
        limit + GRACE_S, exit=True, file=item.config.stash[_stderr]
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _watch(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    # pytest itself takes the limit away when a test fails.
    _watch(item)
    return (yield)
