"""The rules as they ship, over programs that are well and over each planted fault.

`watch_alerts.py` is what runs them, for an hour or as long as one likes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from alert_programs import ILL
from own_mounts import in_own_mounts
from prometheus_server import prometheus_tool

_WATCH = Path(__file__).with_name("watch_alerts.py")
_WELL_MINUTES = 12


@pytest.mark.nightly
@pytest.mark.timeout(3600)  # rules ask for up to half an hour of trouble
def test_no_alert_for_the_well_and_for_each_fault_the_one_meant_for_it():
    prometheus_tool("prometheus")
    in_own_mounts("true")

    done = subprocess.run(
        [sys.executable, str(_WATCH), f"--minutes={_WELL_MINUTES}", "--faults=all"],
        stdout=subprocess.PIPE,
        text=True,
    )

    print(done.stdout)
    found = json.loads(done.stdout.splitlines()[-1])["summary"]
    assert found["well"]["fired"] == []
    assert found["well"]["grown"] == []
    assert found["false"] == []
    assert found["ended"] == []
    came = found["faults"]
    assert {name.partition(":")[0] for name in came} == {
        n for n in ILL if ILL[n].alerts
    }
    assert {name for name, one in came.items() if not one["ok"]} == set()
    assert done.returncode == 0
