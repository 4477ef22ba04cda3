"""pytest --npu-schedules, --npu-seed, --npu-sanitize and --npu-sync."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

__all__: list[str] = []

_RACES = (
    "npu_races(reason): the test leaves accesses without an order on purpose; "
    "--npu-sanitize does not look at it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("npu_dispatch")
    group.addoption(
        "--npu-torch-npu",
        action="store_true",
        help="make `import torch_npu` give this device",
    )
    group.addoption(
        "--npu-schedules",
        type=int,
        default=0,
        metavar="N",
        help="run every test N times, each under another interleaving of streams",
    )
    group.addoption(
        "--npu-seed",
        type=int,
        default=1,
        metavar="SEED",
        help="of the first of them; the others count on from it",
    )
    group.addoption(
        "--npu-sanitize",
        action="store_true",
        help="fail tests whose streams access memory without an order",
    )
    group.addoption(
        "--npu-suppressions", metavar="FILE", help="of --npu-sanitize, not to report"
    )
    group.addoption(
        "--npu-sync",
        choices=("warn", "error"),
        help="warn of, or fail at, a test's hidden waits for the device",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _RACES)


@pytest.hookimpl(tryfirst=True)  # conftest.py may import it already
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if early_config.known_args_namespace.npu_torch_npu:
        import npu_dispatch

        npu_dispatch.install_torch_npu_alias()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    schedules = metafunc.config.getoption("--npu-schedules")
    if not schedules:
        return
    first = metafunc.config.getoption("--npu-seed")
    seeds = range(first, first + schedules)
    ids = [f"npu-seed={seed}" for seed in seeds]
    metafunc.parametrize("_npu_schedule", seeds, ids=ids, indirect=True)


@pytest.fixture(autouse=True)
def _npu_schedule(request: pytest.FixtureRequest) -> Iterator[None]:
    seed = getattr(request, "param", None)
    if seed is None:
        yield
        return
    from npu_dispatch import testing

    with testing.schedule(seed):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    with ExitStack() as stack:
        if item.config.getoption("--npu-sanitize"):
            stack.enter_context(_sanitized(item))
        if mode := item.config.getoption("--npu-sync"):
            stack.enter_context(_sync_debug(mode))
        return (yield)


@contextmanager
def _sanitized(item: pytest.Item) -> Iterator[None]:
    """Stay on between tests: what one leaves queued, the next may race with."""
    from npu_dispatch.npu import _sanitizer

    if item.get_closest_marker("npu_races"):
        _sanitizer.disable_npu_sanitizer()
    else:
        _sanitizer.enable_npu_sanitizer(
            "raise", item.config.getoption("--npu-suppressions")
        )
    yield


@contextmanager
def _sync_debug(mode: str) -> Iterator[None]:
    """Watch the test's own waits, in all of its threads; not its fixtures'."""
    from npu_dispatch.npu import get_sync_debug_mode, set_sync_debug_mode

    before = get_sync_debug_mode()
    set_sync_debug_mode(mode)
    try:
        yield
    finally:
        set_sync_debug_mode(before)
