"""pytest's options --npu-schedules, --npu-sanitize, --npu-sync and others.

pytest loads this file in every run of every project, and so it only names the
options: npu_dispatch, and torch with it, is imported once one of them is given.
It is a package of its own because a part of npu_dispatch could not be imported
without npu_dispatch.
"""

from __future__ import annotations

import argparse

import pytest

__all__: list[str] = []

_RACES = (
    "npu_races(reason): the test leaves accesses without an order on purpose; "
    "--npu-sanitize does not look at it"
)

# Options that say more of another one.
_NEEDS = {
    "--npu-seed": "--npu-schedules",
    "--npu-length": "--npu-schedules",
    "--npu-suppressions": "--npu-sanitize",
}


def _not_negative(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected 0, 1, 2 ..., found {text!r}")
    return int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("npu_dispatch")
    group.addoption(
        "--npu-torch-npu",
        action="store_true",
        help="make `import torch_npu` give this device",
    )
    group.addoption(
        "--npu-schedules",
        type=_not_negative,
        default=0,
        metavar="N",
        help="run every test N times, each under another interleaving of streams",
    )
    group.addoption(
        "--npu-seed",
        type=_not_negative,
        metavar="SEED",
        help="seed of the first of the N runs, by default 1; each later run adds 1; 0: "
        "program order",
    )
    group.addoption(
        "--npu-length",
        type=_not_negative,
        metavar="TASKS",
        help="about how many tasks a test launches; part of what a seed means",
    )
    group.addoption(
        "--npu-sanitize",
        action="store_true",
        help="fail tests whose streams access memory without an order",
    )
    group.addoption(
        "--npu-suppressions",
        metavar="FILE",
        help="findings that --npu-sanitize does not report",
    )
    group.addoption(
        "--npu-sync",
        choices=("warn", "error"),
        help="warn of, or fail at, a test's hidden waits for the device",
    )
    group.addoption(
        "--npu-clear-errors",
        action="store_true",
        help="after each test, clear the errors of its tasks that it did not wait for; "
        "name the tests at the end",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _RACES)
    options = (
        "--npu-schedules",
        "--npu-sanitize",
        "--npu-sync",
        "--npu-clear-errors",
    )
    for name, needs in _NEEDS.items():
        if config.getoption(name) is not None and not config.getoption(needs):
            raise pytest.UsageError(f"{name} has an effect only with {needs}")
    if any(config.getoption(name) for name in options):
        from npu_dispatch import pytest_plugin

        config.pluginmanager.register(pytest_plugin, "npu_dispatch_tests")


@pytest.hookimpl(tryfirst=True)  # conftest.py may import it already
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if early_config.known_args_namespace.npu_torch_npu:
        import npu_dispatch

        npu_dispatch.install_torch_npu_alias()
