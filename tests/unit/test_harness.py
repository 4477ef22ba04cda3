"""The tests' own machinery: skips that CI refuses, and limits that end a hang."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import watchdog
from missing import ALLOWED_IN_CI, need_module, need_tool, refuse_skip

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"


@pytest.mark.parametrize(
    ("ci", "outcome"),
    [("1", pytest.fail), ("true", pytest.fail), ("", pytest.skip), ("0", pytest.skip)],
)
def test_a_missing_tool_or_module_fails_in_ci_only(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome.Exception, match="no-such-tool is missing: get one"):
        need_tool("no-such-tool", "nor-this", remedy="get one")
    with pytest.raises(outcome.Exception, match=r"no_such_module\.part is missing"):
        need_module("no_such_module.part")


def test_what_is_there_is_found(monkeypatch):
    monkeypatch.setenv("CI", "1")

    assert need_tool("no-such-tool", "sh", remedy="").endswith("/sh")
    assert need_module("json.decoder") is sys.modules["json.decoder"]


def skipped(reason: str) -> pytest.TestReport:
    where = ("test_x.py", 3, f"Skipped: {reason}")
    return pytest.TestReport("x", ("x", 1, "x"), {}, "skipped", where, "call")


@pytest.mark.parametrize(
    ("ci", "reason", "outcome"),
    [
        ("1", "nobody has said why", "failed"),
        ("1", ALLOWED_IN_CI[0], "skipped"),
        ("", "nobody has said why", "skipped"),
    ],
)
def test_in_ci_a_skip_without_allowed_reason_fails(monkeypatch, ci, reason, outcome):
    monkeypatch.setenv("CI", ci)
    report = skipped(reason)

    refuse_skip(report)

    assert report.outcome == outcome


def test_an_expected_failure_is_no_skip(monkeypatch):
    monkeypatch.setenv("CI", "1")
    report = skipped("")
    report.wasxfail = "reason: a defect that is known"

    refuse_skip(report)

    assert report.outcome == "skipped"


SKIPS = """
import pytest
def test_a():
    pytest.skip("as it likes")
@pytest.mark.skipif(True, reason="always")
def test_b():
    pass
@pytest.mark.xfail
def test_c():
    assert False
"""


def test_pytest_in_ci_has_no_silent_skips(fresh_python, child_environment, tmp_path):
    (tmp_path / "conftest.py").write_text(
        f"from importlib.util import module_from_spec, spec_from_file_location\n"
        f"spec = spec_from_file_location('theirs', {str(CONFTEST)!r})\n"
        "theirs = module_from_spec(spec)\n"
        "spec.loader.exec_module(theirs)\n"
        "pytest_runtest_makereport = theirs.pytest_runtest_makereport\n"
        "pytest_make_collect_report = theirs.pytest_make_collect_report\n"
    )
    (tmp_path / "test_x.py").write_text(SKIPS)
    (tmp_path / "test_y.py").write_text("import pytest\npytest.importorskip('nix_')\n")
    env = child_environment(CI="1", PYTHONPATH=str(CONFTEST.parent / "support"))

    flags = ("-q", "-rf", "--continue-on-collection-errors")
    result = fresh_python.run("-m", "pytest", *flags, str(tmp_path), env=env)

    assert result.returncode
    assert "skipped, which CI does not allow: as it likes" in result.stdout
    assert "skipped, which CI does not allow: always" in result.stdout
    assert "skipped, which CI does not allow: could not import 'nix_'" in result.stdout


HANGS = """
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
    (tmp_path / "conftest.py").write_text(HANGS)
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
