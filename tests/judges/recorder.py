"""A pytest plugin that writes down what came of each test, at once, as JSON lines.

A foreign suite runs with `-p recorder`; tests/judges/shards.py reads the lines, also
those of a process that a test ended. The environment says what to run:

JUDGES_LOG   file that the lines are added to; what it tells of is not run again
JUDGES_PART  K/N: tests of which a hash of the name is K modulo N
JUDGES_ONLY  file with the names of the only tests to run, one a line
JUDGES_DISGUISE  1: cpu has another name
JUDGES_SAID  the torch version that the suite is told, where it refuses a newer one

Some tests end early, or skip, where the device is called "cpu". For the comparison with
cpu they are run there in disguise: `device == "cpu"` and `torch.device(device).type ==
"cpu"` are false in them and in the modules of their suite, and tensors are made on cpu
all the same.
"""

import functools
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import told
import torch

LOG = Path(os.environ["JUDGES_LOG"])
LETTERS = 300  # of a message


def _write(**line: Any) -> None:
    with LOG.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _message(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        text = crash.message
    elif isinstance(report.longrepr, tuple):  # where a test was skipped, and why
        text = report.longrepr[2]
    else:
        text = str(report.longrepr)
    return " ".join(text.split())[:LETTERS]


def pytest_configure() -> None:
    if said := os.environ.get("JUDGES_SAID"):
        torch.__version__ = torch.torch_version.TorchVersion(said)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    done, part = told.read(LOG), os.environ.get("JUDGES_PART", "0/1")
    only = None
    if file := os.environ.get("JUDGES_ONLY"):
        only = set(Path(file).read_text().splitlines())
    kept, left = [], []
    for item in items:
        is_chosen = item.nodeid not in done and told.is_part(item.nodeid, part)
        is_chosen = is_chosen and (only is None or item.nodeid in only)
        (kept if is_chosen else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
    _write(collected=len(kept))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(test=report.nodeid, outcome="failed", message=_message(report))


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(test=nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    if os.environ.get("JUDGES_DISGUISE"):
        put_on_disguise(item)


_outcomes: dict[str, tuple[str, str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    outcome, message = _outcomes.get(report.nodeid, ("passed", ""))
    if report.outcome != "passed" and outcome != "failed":
        # A failure that was expected is neither.
        outcome, message = report.outcome, _message(report)
        _outcomes[report.nodeid] = outcome, message
    if report.when == "teardown":
        _outcomes.pop(report.nodeid, None)
        _write(test=report.nodeid, outcome=outcome, message=message)


def pytest_sessionfinish() -> None:
    _write(finished=True)


_LITERAL = sys.intern("cpu")


class Name(str):
    """The name of cpu, which is not equal to the one that a program spells out.

    It is equal to what a tensor calls its device: only literals are interned.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) or (other is not _LITERAL and str(self) == other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))


class _Device:
    """What torch.device(Name("cpu")) is to a test: only asked for its type."""

    type = Name("cpu")
    index = None

    def __str__(self) -> str:
        return "cpu"


class _Devices(type):
    """torch.device, which does not know cpu by its name."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Name):
            return _Device()
        return torch.device(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.device)


class Torch(ModuleType):
    """torch, but for its `device`."""

    class device(metaclass=_Devices):
        pass

    def __init__(self) -> None:
        super().__init__("torch")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@functools.cache
def _let_it_run() -> None:
    # Its import takes a second, which most suites spare.
    from torch.testing._internal import common_device_type as known

    known.NATIVE_DEVICES = (*known.NATIVE_DEVICES, Name("cpu"))


def put_on_disguise(item: pytest.Item) -> None:
    """Disguise the device that a test has as an argument, or by its class."""
    arguments = getattr(item, "funcargs", {})
    owner = getattr(item, "cls", None)
    of_class = getattr(owner, "device_type", None)  # as PyTorch's own suites have it
    if of_class is not None:
        if str(of_class) != "cpu":
            return
        owner.device_type = Name("cpu")
        # The arguments that torch has made for the test, and what may run it.
        for made in getattr(owner, item.name).__defaults__ or ():
            if isinstance(made, dict) and "device" in made:
                made["device"] = Name("cpu")
        _let_it_run()
    elif arguments.get("device") == "cpu":
        arguments["device"] = Name("cpu")
    else:
        return
    suite, _, _ = item.module.__name__.partition(".")
    for name, module in list(sys.modules.items()):
        of_suite = module is item.module or name.partition(".")[0] == suite
        if of_suite and vars(module).get("torch") is torch:
            vars(module)["torch"] = Torch()
