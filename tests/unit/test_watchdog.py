"""A test that never ends is ended, also where pytest-timeout has let go of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import watchdog

CONFTEST = """
import ctypes, pytest, watchdog

watchdog.GRACE_S = 2

@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    config.pluginmanager.register(watchdog)

@pytest.fixture
def waits_in_c():
    lock = ctypes.create_string_buffer(64)  # a mutex, open

    def never_returns():
        # With the GIL, and no signal ends it.
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(lock)

    return never_returns

@pytest.fixture
def never_torn_down(waits_in_c):
    yield
    waits_in_c()
"""


@pytest.mark.parametrize(
    ("fixture", "body", "where"),
    [
        ("never_torn_down", "assert False", "never_torn_down"),
        ("never_torn_down", "pass", "never_torn_down"),
        ("waits_in_c", "waits_in_c()", "test_it"),
    ],
    ids=["teardown of a failed test", "teardown of a passed test", "test"],
)
def test_a_hang_ends_the_run_and_says_where_it_was(tmp_path, fixture, body, where):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_hangs.py").write_text(f"def test_it({fixture}): {body}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 3\n")

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_timeout"],
        cwd=tmp_path,
        env={
            "PATH": os.defpath,
            "PYTHONPATH": str(Path(watchdog.__file__).parent),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.stderr.startswith("Timeout"), ended.stdout + ended.stderr
    assert f" in {where}\n" in ended.stderr
    assert "=== 1 " not in ended.stdout
