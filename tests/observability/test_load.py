"""The service under more requests than it can answer, and slow clients besides.

bench/service.py measures how long /livez takes then. Here it is asked whether it is
answered, and whether the service's memory stays.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from prometheus_server import serving

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]

CLIENTS = Path(__file__).resolve().parents[2] / "bench" / "_clients.py"
SECONDS, ROUNDS = 20, 3
LOAD = ("--rate", "10000", "--slow", "500")
FLAT_MIB = 16  # less than a thousand requests that are kept


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20


def load(pid: int, port: str, kind: tuple[str, ...]) -> tuple[list[float], list[int]]:
    """Return what memory grew in each round, and how many requests were answered."""
    ask = [sys.executable, str(CLIENTS), port, str(SECONDS)]
    grown, taken = [], []
    for _ in range(ROUNDS):
        before = resident_mib(pid)
        with subprocess.Popen([*ask, *LOAD, *kind], stdout=PIPE) as clients:
            probe = [*ask, "--probe", str(pid)]
            told = json.loads(subprocess.check_output(probe))
            assert clients.stdout is not None
            taken.append(json.load(clients.stdout).get("200", 0))
        assert told["wrong"] == {}
        assert told["ms"]
        grown.append(resident_mib(pid) - before)
    return grown, taken


@pytest.mark.parametrize("kind", [(), ("--fresh",)], ids=["kept", "fresh"])
def test_livez_is_answered_and_memory_stays(child_environment, kind: tuple[str, ...]):
    with serving(child_environment()) as (service, where):
        grown, taken = load(service.pid, where.rpartition(":")[2], kind)

    if not kind:  # whoever leaves after a moment may not be
        assert min(taken) > 0
    assert min(grown) < FLAT_MIB  # what is kept grows in every round
