"""Each benchmark runs, with the cases that the tables name; what its lines become.

Once and with the smallest sizes, which measures nothing: bench/README.md.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from interpreter import environment
from missing import missing, need_tool

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
import _errors
import _load
import _plan_programs
import run_all
import tables

# Built with the C++ tests; Python files use what is built beside it, too.
CORE = run_all.CPP / "submit_bench"
NEED_CORE = ("stats_cost",)
# What they need is installed for the night: wrk (unit/test_examples.py has the server
# itself), and libraries of other people.
AT_NIGHT = {"serve_async", *run_all.LIBRARIES}
# So does what takes more than two seconds of a core, whatever the sizes.
AT_NIGHT |= {"cold", "compile", "neighbour", "plan", "service", "step_profile"}
AT_NIGHT |= {"distributed", "half", "import_time", "scrape_gil", "stats_cost"}
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


LEFT_OUT = ("_defaults", "_beside_1", "_beside_2")  # by a smoke run


def check(benches: dict[str, Any]) -> None:
    """Fail if a row names a case that a benchmark which ran does not have."""
    for name, (_, rows) in tables.TABLES.items():
        for row in rows:
            for case, field in row.cells:
                if row.bench not in benches:
                    continue
                found = benches[row.bench]["cases"].get(case)
                if found is None and case.endswith(LEFT_OUT):
                    continue
                is_there = found and (field in found["figures"] or is_optional(field))
                if not is_there:
                    sys.exit(f"table {name}: {row.bench} has no {case}, {field}")


def is_optional(field: str) -> bool:
    """Not every case has every peer, nor every machine two hosts, and a smoke run
    counts no instructions."""
    return "ratio_to_" in field or field.endswith(
        ("compiled_ratio", "hidden_percent", "statistics_percent")
    )


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
    check({program.name: {"cases": run_all.merged([lines], {})}})


def line(ratio: float) -> dict[str, object]:
    return {"case": "a", "ratio": ratio, "kind": "x"}


def test_a_figure_is_the_median_of_the_runs_beside_their_range():
    runs = [[{"bench": "b"}, line(r)] for r in (0.1, 0.4, 0.9)]
    cases = run_all.merged(runs, {"b*.ratio": "<= 0.1", "a.ratio": "<= 0.5"})
    assert cases["a"]["figures"]["ratio"] == {"median": 0.4, "least": 0.1, "most": 0.9}
    assert cases["a"]["goals"] == {"ratio": ["<=", 0.5]}
    assert cases["a"]["short"] == []
    assert tables.cell(cases, "a", "ratio") == "0.40 (0.10 to 0.90)"
    text = "takes <!-- figure b a ratio -->?<!-- end --> of the time"
    result = {"benches": {"b": {"cases": cases}}}
    assert tables.with_figures(text, result) == text.replace("?", "0.40")


def test_a_figure_that_falls_short_of_its_goal_is_listed():
    runs = [[line(r)] for r in (0.6, 0.4, 0.9)]
    assert run_all.merged(runs, {"*.ratio": "<= 0.5"})["a"]["short"] == ["ratio"]
    assert run_all.merged(runs, {"*.ratio": ">= 0.5"})["a"]["short"] == []


def test_each_goal_is_of_a_benchmark():
    names = {program.name for program in run_all.programs()} | {"ring_bench"}
    assert run_all.GOALS.keys() <= names


def test_a_case_that_one_run_lacks_is_a_failure():
    with pytest.raises(run_all.FailedError, match="1 times in 2 runs"):
        run_all.merged([[line(0.1)], []], {})


def test_a_row_whose_case_is_gone_is_a_failure():
    with pytest.raises(SystemExit, match="import_time has no import, ms"):
        check({"import_time": {"cases": {}}})


def test_each_kind_of_a_plan_has_a_reason():
    assert set(_errors.REASONS) == set(_plan_programs.PROGRAMS)


class Bench:
    """`make bench` of programs that count in a file how often each has run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setattr(run_all, "ROOT", folder)
        monkeypatch.setattr(run_all, "programs", lambda: self.programs)
        monkeypatch.setattr(run_all, "FRONT", {"a", "b"})
        self.programs = [self.program("a"), self.program("b")]

    def program(self, name: str, then: str = "") -> run_all.Program:
        counted = str(self.folder / name)
        code = f"""
import sys
open({counted!r}, "a").write("x")
{then}
print('{{"case": "c", "ratio": 0.5}}')
"""
        return run_all.Program(name, (sys.executable, "-c", code))

    def times(self, name: str) -> int:
        counted = self.folder / name
        return len(counted.read_text()) if counted.exists() else 0

    def run(self, *options: str) -> Result:
        return CliRunner().invoke(run_all.main, options)

    def result(self, name: str = "bench") -> dict[str, Any]:
        return json.loads((self.folder / "out" / f"{name}.json").read_text())


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return Bench(tmp_path, monkeypatch)


def test_each_file_runs_five_times_and_the_next_time_not_at_all(bench):
    assert bench.run().exit_code == 0
    assert bench.run().exit_code == 0

    assert (bench.times("a"), bench.times("b")) == (5, 5)
    assert bench.result()["runs"] == 5


def test_files_of_which_the_front_page_shows_nothing_run_less_often(bench):
    bench.programs = [bench.program(name) for name in ("a", "other")]

    bench.run()

    assert [bench.times(p.name) for p in bench.programs] == [5, 2]
    runs = {n: b["runs"] for n, b in bench.result()["benches"].items()}
    assert runs == {"a": 5, "other": 2}
    assert "median of 2 to 5 runs" in tables.about(bench.result())


def test_a_file_that_fails_stops_no_other_and_runs_again(bench):
    never_built = run_all.Program("a", (str(bench.folder / "ring_bench"),))
    for broken, said in (
        (never_built, "cannot start"),
        (bench.program("a", "raise SystemExit(3)"), "status 3"),
    ):
        bench.programs[0] = broken

        done = bench.run()

        assert done.exit_code == 1
        assert said in done.output
        assert bench.result()["not_run"] == ["a"]
        assert bench.times("b") == 5

    bench.programs[0] = bench.program("a")
    assert bench.run().exit_code == 0

    assert (bench.times("a"), bench.times("b")) == (6, 5)
    assert bench.result()["not_run"] == []


def test_what_is_named_runs_again_and_the_rest_is_kept(bench):
    bench.run()
    bench.run("--only", "b")

    assert (bench.times("a"), bench.times("b")) == (5, 10)
    assert set(bench.result()["benches"]) == {"a", "b"}


def test_a_name_of_no_file_is_refused(bench):
    assert "no benchmark is named x" in bench.run("--only", "a,x").output
    assert bench.times("a") == 0


@pytest.mark.parametrize(
    ("changed", "options", "runs"),
    [
        ("csrc/ring.h", [], 10),
        ("docs/performance.md", [], 5),  # pages and tables are no sources
        ("bench/tables.py", [], 5),
        ("", ["--runs", "6"], 11),
        ("", ["--fresh"], 10),
    ],
)
def test_figures_are_kept_while_sources_are_the_same(bench, changed, options, runs):
    bench.run()
    if changed:
        path = bench.folder / changed
        path.parent.mkdir()
        path.write_text("# another one")

    bench.run(*options)

    assert bench.times("a") == runs


def test_figures_of_few_runs_are_not_published(bench):
    bench.run("--runs", "4")

    with pytest.raises(SystemExit, match=r"4 runs of each file.*fewer than 5"):
        tables.published(bench.folder / "out" / "bench.json")


def test_a_table_of_what_was_not_run_stays_as_it_was(bench, monkeypatch, capsys):
    page = "<!-- figures programs -->\nof before\n<!-- end -->\n"
    sentence = "takes <!-- figure rl ppo ratio -->0.5<!-- end -->\n"
    (bench.folder / "page.md").write_text(page + sentence)
    bench.run()
    monkeypatch.setattr(tables, "ROOT", bench.folder)
    monkeypatch.setattr(sys, "argv", ["tables.py", "page.md"])

    tables.main()

    assert (bench.folder / "page.md").read_text() == page + sentence
    told = capsys.readouterr().out
    assert "table programs stays as it was: not run: rl, trainer" in told


@pytest.mark.parametrize(("others", "is_told"), [(0.04, False), (0.06, True)])
def test_a_page_says_that_the_machine_was_loaded(bench, others, is_told):
    bench.run()
    result = bench.result()
    for one in result["benches"].values():
        one |= {"others": others, "seconds": 10}

    text = tables.about(result)

    assert ("On a loaded machine" in text) == is_told
    used = f"other programs used {100 * others:.0f} % of the cores"
    assert ("idle machine" if others < tables.IDLE else used) in text
    assert "median of 5 runs (min to max)" in text


def test_what_children_do_is_no_load_of_others(monkeypatch):
    busy, own = iter([100.0, 108.0]), iter([1.0, 7.0])
    monkeypatch.setattr(_load, "_busy_s", lambda: next(busy))
    monkeypatch.setattr(_load, "_own_s", lambda: next(own))
    monkeypatch.setattr(_load.Load, "seconds", lambda self: 4.0)
    monkeypatch.setattr(_load.os, "cpu_count", lambda: 2)

    # 8 s of work in 4 s of two cores, of which 6 were ours.
    assert _load.Load().of_others() == 0.25
