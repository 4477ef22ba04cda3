"""Each benchmark runs, and has the cases that the tables of README.md name.

Once and with the smallest sizes, which measures nothing: bench/README.md.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from interpreter import environment
from missing import missing, need_tool

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
import run_all
import tables

# Built with the C++ tests; Python files use what is built beside it, too.
CORE = run_all.CPP / "stats_cost"
NEED_CORE = (CORE.name, "enqueue")
# What they need is installed for the night: wrk (tests/aio/test_serve.py has the server
# itself), and libraries of other people.
AT_NIGHT = {"serve_async", *run_all.LIBRARIES}
# So does what takes more than two seconds of a core, whatever the sizes.
AT_NIGHT |= {"cold", "compile", "neighbour", "plan", "service", "step_profile"}
AT_NIGHT |= {"distributed", "half", "import_time", "scrape", "scrape_gil", "stats_cost"}
AT_NIGHT |= {"train"}
PROGRAMS = [
    pytest.param(
        program,
        id=program.name,
        marks=pytest.mark.nightly if program.name in AT_NIGHT else (),
    )
    for program in run_all.programs()
    # Minutes of callgrind.
    if program.name not in run_all.BY_NAME_ONLY
]


def as_users_run_them() -> dict[str, str]:
    """Return the environment without what the tests themselves run under."""
    ours = ("NPU_", "TORCH_NPU_")
    return {k: v for k, v in environment().items() if not k.startswith(ours)}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_benchmark_runs_and_has_the_cases_that_the_tables_name(python, program):
    first, *arguments = program.command
    needs_core = program.name in NEED_CORE or first.startswith(str(run_all.CPP))
    if needs_core and not CORE.exists():
        missing(str(CORE), "make test-cpp")
    for tool in run_all.TOOLS.get(program.name, ()):
        if tool != "valgrind":  # counts instructions, which a smoke run does not
            need_tool(tool, remedy=f"apt-get install {tool}")
    needed = run_all.LIBRARIES.get(program.name, ())
    if run_all.libraries.python_with(*needed) is None:
        missing(", ".join(needed), "make bench-libraries")
    env = as_users_run_them()

    if first == sys.executable:
        done = python.run(*arguments, "--smoke", env=env, timeout=170)
    else:
        done = subprocess.run(
            [*program.command, "--smoke"], capture_output=True, text=True, env=env
        )

    assert done.returncode == 0, done.stderr
    lines = run_all.lines_of(done.stdout)
    assert len(lines) > 1
    tables.check({program.name: {"cases": run_all.merged([lines], {})}})
