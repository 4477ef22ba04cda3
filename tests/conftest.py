"""What every test may use, and what every test must leave behind: nothing."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import npu_dispatch
from npu_dispatch import _C

ROOT = Path(__file__).resolve().parent.parent
Python = Callable[..., subprocess.CompletedProcess[str]]

# Never "ci", which hypothesis chooses by itself and which repeats one seed.
settings.register_profile("change", max_examples=100, deadline=None)
settings.register_profile("nightly", max_examples=1000, deadline=None)
settings.load_profile("nightly" if os.environ.get("NPU_TEST_NIGHTLY") else "change")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw other examples at each run, from a seed that the run prints."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seed = terminalreporter.config.option.hypothesis_seed
    terminalreporter.write_line(f"the same examples again: --hypothesis-seed={seed}")


def _clear_all() -> None:
    for index in range(torch.npu.device_count()):
        for stream_id in _open_streams(index):
            _C.clear_error(index, stream_id)


def _open_streams(index: int) -> list[int]:
    from npu_dispatch.stats import StatsReader, segment_file

    with StatsReader(segment_file()) as reader:
        return [s.stream for s in reader.streams() if s.device == index]


@pytest.fixture(scope="session", autouse=True)
def searched_for_garbage_is_what_tests_make():
    """Spare each test the search through all that was imported: 0.3 s."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def leaves_nothing_behind():
    """No live task, no pending error, no leaked byte, no other current stream."""
    gc.collect()
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
    gc.collect()
    assert torch.npu.memory_allocated() == before, "device memory was leaked"


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Run a program in a fresh interpreter: python(code, NAME=value...)."""

    def run(
        code: str, *args: str, timeout: float = 120, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [sys.executable, "-c", code, *args],
            env=environment(**env),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check:
            assert result.returncode == 0, result.stderr
        return result

    return run


def environment(**changes: str) -> dict[str, str]:
    """Return an environment in which a child finds this npu_dispatch."""
    env = {**os.environ, **changes}
    home = Path(_C.__file__).parent.parent
    if (home / "npu_dispatch" / "__init__.py").exists():  # built in place
        paths = [str(home), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return env


@pytest.fixture
def child_environment() -> Callable[..., dict[str, str]]:
    return environment


assert npu_dispatch.is_registered(), "the device is not registered: see `make build`"
