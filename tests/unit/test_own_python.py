"""Programs that we start run no file which happens to be where the user is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PLANTED = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
NAMES = ("json", "socket", "struct", "subprocess", "tempfile")
STARTS = {
    "exporter": """
from npu_dispatch.metrics import start_exporter
try:
    start_exporter(0).close()
except OSError:
    pass
""",
    "watchdog": """
import os
from npu_dispatch.observe.judge.watchdog import start_watchdog
start_watchdog(os.getpid(), 60)
""",
    "doctor": """
from npu_dispatch.cli import doctor
list(doctor._try_device({}))
""",
    "plan": """
from npu_dispatch.plan import record, sheet
try:
    record.record(["nothing.py"], [sheet.load("a100-80gb-sxm")])
except record.PlanError:
    pass
""",
}


@pytest.mark.parametrize("code", STARTS.values(), ids=STARTS)
def test_a_helper_imports_nothing_from_the_current_directory(
    fresh_python, tmp_path: Path, code: str
):
    here = tmp_path / "here"
    here.mkdir()
    for name in NAMES:
        (here / f"{name}.py").write_text(PLANTED)
    script = tmp_path / "script.py"
    script.write_text(code)

    # Its pipes end with the last helper that has them.
    done = fresh_python.run(str(script), cwd=here)

    assert done.returncode == 0, done.stderr
    assert not (here / "ran").exists()


def test_one_file_says_how_python_is_started():
    package = Path(sys.modules["npu_dispatch"].__file__).parent
    naming = {
        path.name
        for path in package.rglob("*.py")
        if "[sys.executable" in path.read_text()
    }

    assert naming == {"own_python.py", "doctor.py"}  # doctor's is text for a user
