"""Suites that cost no imports: of torch, and of plugins that they do not need."""

import contextlib
import subprocess

import pytest
from interpreter import environment

from tests.judges import shards

# What `python -m pytest` with tests/judges first on its path does.
PYTEST = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import pytest; "
    "sys.exit(pytest.main(sys.argv[1:]))"
)


@pytest.fixture(autouse=True)
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def forked(python, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suites run in forks of a process that has imported torch."""

    @contextlib.contextmanager
    def started(command, output, *, cwd, env):
        arguments = command[command.index("pytest") + 1 :]
        # What was read at the start is as it was in the process that forks.
        path = {"PYTHONPATH": environment().get("PYTHONPATH", "")}
        env = {name: value for name, value in (env | path).items() if value}
        child = python.start(
            *("-c", PYTEST, str(shards.HERE), *arguments),
            cwd=cwd,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        try:
            yield child
        finally:
            child.kill()
            child.wait()

    monkeypatch.setattr(shards, "started", started)
