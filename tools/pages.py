"""What pages of docs/ say of runs that are kept.

    python tools/pages.py             writes all of it anew
    python tools/pages.py KIND...     keeps the last run of that kind before

Kinds: nightly, fuzz, torture and versions. A run of the first two is kept as
docs/KIND.json, one of the campaign beside the earlier ones in docs/campaign.json, so
that a long one can be cut into several; docs/versions.json has the newest run of
each pair of torch and CPython. `make judges` and `make compatibility` keep theirs
by themselves. Between `<!-- figures NAME -->` and `<!-- end -->` stands what this
makes of them, or that there has been none; nobody types what is there.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.judges import reasons

ROOT = Path(__file__).resolve().parents[1]
DOCS, OUT = ROOT / "docs", ROOT / "out"
LIBRARIES = ROOT / "tests" / "compatibility" / "results.tsv"
BLOCK = re.compile(r"(<!-- figures (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
# The worst of a campaign, which the worst of all is, and not their sum.
WORST = "/livez, slowest answer, ms"
TROUBLE = ("hangs", "tasks lost", "wrong outcomes")
SHOWN = (
    "operators run",
    "faults injected",
    "faults that raised a typed error",
    "faults with the right result",
    "damaged files read",
    "/livez requests",
    "/livez requests answered",
    *TROUBLE,
)
# What is not kept of a campaign: it is long, and fixed before.
LONG = ("findings", "details", "summary")
GOAL = 0.99  # of others' tests that are right
PARTS = 3  # of each suite
Run = dict[str, Any]


def line(cells: Iterable[object]) -> str:
    texts = (re.sub(r"(?<!\\)\|", r"\\|", str(cell)) for cell in cells)
    return f"| {' | '.join(texts)} |\n"


def table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    return "".join(map(line, [heads, ["---"] * len(heads), *rows]))


def filled(text: str, write: Callable[[str], str | None]) -> str:
    """Return a page with what `write` gives for each name of its blocks; one that it
    gives None for stays as it is."""

    def anew(found: re.Match[str]) -> str:
        made = write(found[2])
        return found[0] if made is None else found[1] + made + found[3]

    return BLOCK.sub(anew, text)


def kept(name: str) -> Any:
    """Return what docs/NAME.json has; None where there is none."""
    path = DOCS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def of_night(night: Run | None) -> str:
    """Return the table of a night's steps, and what of it was not run."""
    if night is None:
        return "No night has been kept yet.\n"
    rows = [
        [step["step"], f"{step['seconds']:,.0f}", step["result"], step["figure"]]
        for step in night["steps"]
    ]
    whole = sum(step["seconds"] for step in night["steps"])
    rows.append(["all", f"{whole:,.0f}", "", ""])
    text = table(["step", "seconds", "result", "figure"], rows)
    text += f"\n{night['cores']} cores, {night['began']} UTC, commit "
    text += f"`{night['commit']}`.\n"
    if night["not_run"]:
        names = ", ".join(f"`{name}`" for name in night["not_run"])
        text += f"Not run: {names}.\n"
    return text


def of_fuzz(run: Run | None) -> str:
    """Return the table of a run of the fuzzer, and how soon it finds planted bugs."""
    if run is None:
        return "No run has been kept yet.\n"
    planted = run["details"]["planted"]
    programs = [bug["sequences"] for bug in planted if bug["found"]]
    counts = (f"{count:,} {name}" for name, count in run["counts"].items())
    text = f"{', '.join(counts)}. ".replace("sequences", "programs")
    text = text.replace("known:", "expected differences:")
    text += f"{len(programs)} of {len(planted)} planted bugs are found"
    if programs:
        text += f", after a median of {statistics.median(programs):,.0f} programs "
        text += f"(at most {max(programs):,})"
    if lost := [f"`{bug['name']}`" for bug in planted if not bug["found"]]:
        text += f". Not found: {', '.join(lost)}"
    about = f"{run['cores']} cores, {run['began']} UTC, commit `{run['commit']}`"
    return f"{text}.\n\n{about}.\n"


def sums(runs: Sequence[Run]) -> dict[str, float]:
    """Return the counts of all runs together."""
    found: dict[str, float] = {}
    for run in runs:
        for name, value in run["counts"].items():
            before = found.get(name, 0)
            found[name] = max(before, value) if name == WORST else before + value
    return found


def of_campaign(runs: Sequence[Run] | None) -> str:
    """Return a row for each run, and one for all."""
    if not runs:
        return "No campaign has been kept yet.\n"
    rows = [
        [f"{run['began']} UTC", f"`{run['commit']}`", run["torch"], run["seconds"]]
        + [run["counts"][name] for name in SHOWN]
        for run in runs
    ]
    whole = sums(runs)
    seconds = sum(run["seconds"] for run in runs)
    rows.append(["all", "", "", seconds, *(whole[name] for name in SHOWN)])
    heads = ["began", "commit", "torch", "minutes", *SHOWN]
    cells = (
        [*row[:3], f"{row[3] / 60:,.0f}", *(f"{count:,}" for count in row[4:])]
        for row in rows
    )
    return table(heads, cells)


def of_versions(runs: Sequence[Run] | None) -> str:
    heads = ["torch", "CPython", "passed", "failed", "skipped", "date", "commit"]
    rows = []
    for run in runs or ():
        counts = (f"{run[key]:,}" for key in ("passed", "failed", "skipped"))
        about = (run["date"], f"`{run['commit']}`")
        rows.append([run["torch"], run["python"], *counts, *about])
    return table(heads, rows)


def _right(counts: Mapping[str, int]) -> str:
    """Return the part that is right of what cpu does right, and if it is too small."""
    judged = sum(counts[key] for key in ("passed", "failed", "crashed", "hung"))
    if not judged:
        return "not run yet"
    below = f" (goal: {GOAL:.0%})" if counts["passed"] < GOAL * judged else ""
    return f"{100 * counts['passed'] / judged:.2f} %{below}"


def _classes(parts: Iterable[Run]) -> str:
    """Return the classes of failures, with an example of each."""
    failures = [failure for part in parts for failure in part["failures"]]
    if not failures:
        return "No test fails on npu only.\n"
    why_of = {f["test"]: reasons.reason(f["test"], f["message"]) for f in failures}
    rows = []
    for why, number in Counter(why_of.values()).most_common():
        first = next(test for test, its in why_of.items() if its == why)
        rows.append([f"{number:,}", why, f"`{first.rpartition('/')[2]}`"])
    heads = ["tests", "reason", "example"]
    return f"Tests that fail on npu only:\n\n{table(heads, rows)}"


def of_judges(suites: Mapping[str, Run] | None) -> str:
    """Return the sums of each suite's parts, and why tests fail."""
    rows, ran = [], []
    for name, suite in (suites or {}).items():
        parts = list(suite["parts"].values())
        counts: Counter[str] = Counter()
        for part in parts:
            counts.update(part["counts"])
        when = "<br>".join(f"{run['ended']}, `{run['commit']}`" for run in parts)
        about = (suite["version"], f"{len(parts)} of {PARTS}", when)
        bad = (f"{counts[key]:,}" for key in ("passed", "failed", "crashed", "hung"))
        others = (f"{counts[key]:,}" for key in ("not right on cpu either", "skipped"))
        source = f"{name} ({suite['source']})"
        rows.append([source, *about, *bad, _right(counts), *others])
        ran += parts
    heads = ["suite", "version", "thirds run", "ended (UTC), commit", "passed"]
    heads += ["failed", "crashed", "hung", "right", "fail on cpu, too"]
    heads.append("not applicable")
    return f"{table(heads, rows)}\n{_classes(ran)}"


def of_libraries(text: str) -> str:
    """Return a row for each library, and for each result where it has several."""
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t"))
    works = sum(row["result"] == "works" for row in rows)
    programs: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        keys = ("library", "version", "result", "run", "commit")
        run = tuple(row[key] for key in keys)
        programs.setdefault(run, []).append(row["what"])
    cells = (
        (library, version, "<br>".join(whats), result, date, f"`{commit}`")
        for (library, version, result, date, commit), whats in programs.items()
    )
    heads = ["library", "version", "programs", "result", "date", "commit"]
    return f"{works} of {len(rows)} programs agree with cpu.\n\n{table(heads, cells)}"


PAGES = ("tested_with",)
BLOCKS: dict[str, Callable[[], str]] = {
    "nightly": lambda: of_night(kept("nightly")),
    "campaign": lambda: of_campaign(kept("campaign")),
    "fuzz": lambda: of_fuzz(kept("fuzz")),
    "versions": lambda: of_versions(kept("versions")),
    "judges": lambda: of_judges(kept("judges")),
    "libraries": lambda: of_libraries(LIBRARIES.read_text()),
}


def page(text: str) -> str:
    return filled(text, lambda name: BLOCKS[name]())


def write() -> None:
    for name in PAGES:
        path = DOCS / f"{name}.md"
        path.write_text(page(path.read_text()))


# Keeping.


def with_campaign(runs: Sequence[Run] | None, new: Run) -> list[Run]:
    """Return the runs with a new one; the same run again takes its own place."""
    short = {name: value for name, value in new.items() if name not in LONG}
    others = [run for run in runs or () if run["began"] != new["began"]]
    return sorted([*others, short], key=lambda run: str(run["began"]))


def run_of_version(path: Path, commit: str) -> Run:
    """Return what a file of out/versions says; ValueError for another name."""
    name = re.fullmatch(r"torch-(.+)-python-?(\d+\.\d+)", path.stem)
    if name is None:
        raise ValueError(f"{path}: expected torch-VERSION-python-VERSION.xml")
    suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
    count = {
        key: sum(int(suite.get(key, 0)) for suite in suites)
        for key in ("tests", "failures", "errors", "skipped")
    }
    failed = count["failures"] + count["errors"]
    return {
        "torch": name[1],
        "python": name[2],
        "passed": count["tests"] - failed - count["skipped"],
        "failed": failed,
        "skipped": count["skipped"],
        "date": suites[0].get("timestamp", "")[:10],
        "commit": commit,
    }


def with_versions(old: Sequence[Run] | None, new: Sequence[Run]) -> list[Run]:
    """Return all runs, of each pair the newest, in the order of versions."""
    by_pair = {(run["torch"], run["python"]): run for run in (*(old or ()), *new)}

    def number(pair: tuple[str, str]) -> list[list[int]]:
        return [[int(n) for n in re.findall(r"\d+", version)] for version in pair]

    return [by_pair[pair] for pair in sorted(by_pair, key=number)]


def _keep(name: str, what: Any) -> None:
    (DOCS / f"{name}.json").write_text(json.dumps(what, indent=1) + "\n")


def keep(kind: str) -> None:
    if kind == "torture":
        new = json.loads((OUT / "torture.json").read_text())
        _keep("campaign", with_campaign(kept("campaign"), new))
    elif kind == "versions":
        command = ["git", "rev-parse", "--short=10", "HEAD"]
        commit = subprocess.check_output(command, cwd=ROOT, text=True).strip()
        paths = sorted((OUT / "versions").glob("*.xml"))
        runs = [run_of_version(path, commit) for path in paths]
        _keep("versions", with_versions(kept("versions"), runs))
    elif kind in ("nightly", "fuzz"):
        shutil.copyfile(OUT / f"{kind}.json", DOCS / f"{kind}.json")
    else:
        sys.exit(f"nightly, fuzz, torture or versions; found: {kind}")


if __name__ == "__main__":
    for kind in sys.argv[1:]:
        keep(kind)
    write()
