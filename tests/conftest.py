"""What every test may use, and what every test must leave behind: nothing."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import compiler_sanitizer
import guarded
import longest_first
import pytest
import torch
import watchdog
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from interpreter import Forked, Spawned, environment, shared_zygote
from missing import refuse_skip
from zygote import seed_generators

import npu_dispatch
from npu_dispatch import _C

TESTS = Path(__file__).resolve().parent
# All random inputs follow from it. The gate's are the same in every run; at night
# the Makefile draws one.
SEED = int(os.environ.get("NPU_TEST_SEED", "0"))


@pytest.hookimpl(tryfirst=True)  # hypothesis reads its seed in its own
def pytest_configure(config: pytest.Config) -> None:
    """Draw every example from one seed, and let workers of xdist share the cores.

    Fewer OpenMP threads for a worker would be another program: how kernels split
    their work, and who has a team, is tested. Two teams of two that spin on two
    cores only take time from each other, so theirs sleep. Set here, in the process
    that starts the workers: they have loaded OpenMP before they read this file.
    """
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(SEED)
    config.pluginmanager.register(watchdog)
    config.pluginmanager.register(longest_first)
    durations = os.environ.get("NPU_TEST_DURATIONS")
    if durations and not hasattr(config, "workerinput"):
        config.pluginmanager.register(longest_first.Durations(Path(durations)))
    if config.getoption("numprocesses", None):
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # A shell's background job ignores Ctrl-C, and so would all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    refuse_skip(report)
    return report


# Hypothesis mixes constants of the modules that are loaded into its examples, and
# which are loaded depends on the tests that this process has run before.
_no_constants = providers._local_constants
providers._get_local_constants = lambda: _no_constants

# No database, which repeats what failed in an earlier run, and no check of how
# fast examples are made: both are of the machine.
settings.register_profile(
    "gate",
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("night", settings.get_profile("gate"), max_examples=1000)
settings.load_profile("night" if os.environ.get("NPU_TEST_NIGHTLY") else "gate")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"the same inputs again: NPU_TEST_SEED={SEED}")


@pytest.fixture(autouse=True)
def draws_the_same_numbers_in_every_run():
    """Seed what this process draws from; programs that tests start seed themselves."""
    seed_generators(SEED)


def _clear_all() -> None:
    for index in range(torch.npu.device_count()):
        for stream_id in _open_streams(index):
            _C.clear_error(index, stream_id)


def _open_streams(index: int) -> list[int]:
    from npu_dispatch.observe.segment import StatsReader, segment_file

    with StatsReader(segment_file()) as reader:
        return [s.stream for s in reader.streams() if s.device == index]


_modules_frozen = 0


def _collect() -> None:
    """Collect garbage, but search only what was made since the last import.

    A search through all that is imported takes 0.3 s, and more once a test has
    imported Inductor. So what is alive after an import is exempt from then on.
    """
    global _modules_frozen
    gc.collect()
    if len(sys.modules) != _modules_frozen:
        gc.freeze()
        _modules_frozen = len(sys.modules)


@pytest.fixture(scope="session", autouse=True)
def loses_no_memory(tmp_path_factory: pytest.TempPathFactory):
    """Look at the end for what the extension has allocated and nobody can reach."""
    yield
    if compiler_sanitizer.PRESENT == "address":
        report = tmp_path_factory.mktemp("leaks") / "leaks"
        lost = compiler_sanitizer.leaks(report, Path(_C.__file__).name)
        assert not lost, "\n".join(lost)


@pytest.fixture(autouse=True)
def leaves_nothing_behind():
    """No live task, no pending error, no leaked byte, no other current stream."""
    _collect()
    before = torch.npu.memory_allocated()

    yield

    if not torch.npu.is_initialized():
        return
    torch.npu.set_stream(torch.npu.default_stream(0))
    try:
        torch.npu.synchronize()
    except Exception as error:
        _clear_all()
        pytest.fail(f"a stream was left failed: {error}")
    assert not (touched := guarded.taken()), f"touched device memory: {touched}"
    # What a finalizer lets go may be a ring of its own.
    while torch.npu.memory_allocated() > before and gc.collect():
        pass
    # Less: garbage of an earlier test, whose last user is gone.
    assert torch.npu.memory_allocated() <= before, "device memory was leaked"


@pytest.fixture
def reset() -> Generator[None]:
    """Reset the device after a test that leaves its streams failed."""
    yield
    torch.npu.reset_device()


@pytest.fixture
def python(tmp_path: Path) -> Forked:
    """Run a program: python(code, NAME=value...). The one to use."""
    return Forked(tmp_path, shared_zygote())


@pytest.fixture
def importing_python(tmp_path: Path) -> Forked:
    """The same, but what loads the device is the program's own `import torch`."""
    return Forked(tmp_path, shared_zygote(), imports_torch=True)


@pytest.fixture
def fresh_python(tmp_path: Path) -> Spawned:
    """The same in a new interpreter: for what tests import, exec, start or exit."""
    return Spawned(tmp_path)


@pytest.fixture
def child_environment() -> Callable[..., dict[str, str]]:
    return environment


assert npu_dispatch.is_registered(), "the device is not registered: see `make build`"
