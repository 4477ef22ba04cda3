"""pytest --npu-schedules, --npu-seed and --npu-sanitize."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

__all__: list[str] = []


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
    metafunc.fixturenames.append("_npu_schedule")
    seeds = range(first, first + schedules)
    ids = [f"npu-seed={seed}" for seed in seeds]
    metafunc.parametrize("_npu_schedule", seeds, ids=ids, indirect=True)


@pytest.fixture
def _npu_schedule(request: pytest.FixtureRequest) -> Iterator[None]:
    from npu_dispatch import testing

    with testing.schedule(request.param):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    if not item.config.getoption("--npu-sanitize"):
        return (yield)
    from npu_dispatch.npu import _sanitizer

    _sanitizer.enable_npu_sanitizer(
        "raise", item.config.getoption("--npu-suppressions")
    )
    return (yield)
