"""What pages of docs/ say of runs that are kept.

    python tools/pages.py             writes all of it anew
    python tools/pages.py KIND...     keeps the last run of that kind before

Kinds: nightly, fuzz, watch, torture and versions. A run of the first three is kept as
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
from steps import IN_TURN, Ended

from tests.judges import reasons

ROOT = Path(__file__).resolve().parents[1]
DOCS, OUT = ROOT / "docs", ROOT / "out"
LIBRARIES = ROOT / "tests" / "compatibility" / "results.tsv"
BLOCK = re.compile(r"(<!-- figures (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
# The worst of a campaign, which the worst of all is, and not their sum.
WORST = "/livez, slowest answer, ms"
TROUBLE = ("hangs", "tasks lost", "wrong outcomes")
INJECTED = "faults injected"
RAISED, RIGHT = "faults that raised a typed error", "faults with the right result"
LOST, OF_NULL = "tasks lost (driver `null`)", "tasks run on the driver null"
# A column of the campaign, and the count that is 0 if its part was not run.
RUN = {
    "operators run": "operators run",
    INJECTED: INJECTED,
    RAISED: INJECTED,
    RIGHT: INJECTED,
    "faults with a wrong outcome": INJECTED,
    "damaged files read": "damaged files read",
    "/livez requests": "/livez requests",
    "/livez requests answered": "/livez requests",
    LOST: OF_NULL,
}
# What is not kept of a campaign: it is long, and fixed before.
LONG = ("findings", "details", "summary")
GOAL = 0.99  # of others' tests that are right
PARTS = 3  # of each suite
OF_PARTS = {1: "one third", 2: "two thirds", PARTS: "all of it"}
# What each part of a night tests.
CONTENTS = {
    "packages": "installs packages of the operating system",
    "tools": "installs torch and the development tools",
    "tools core": "installs torch and the tools; builds the C++ core and its tests",
    "build lint": "builds the extension; checks style and types of the code",
    "test": "C++ tests and Python tests",
    "test-sanitizers": "C++ tests, built with TSan, and with ASan and UBSan",
    "conformance": "PyTorch's operator database on `cpu` and on `npu`",
    "torture": "[fault injection](#fault-injection)",
    "compatibility": "programs of other [libraries](#libraries)",
    "judges": "[test suites of other projects](#test-suites-of-other-projects)",
    "test-delayed": "Python tests on a driver that ends tasks late",
    "test-guarded": "Python tests on a driver that notes access outside of kernels",
    "test-sanitized": "Python tests under the [race sanitizer](sanitizer.md)",
    "test-slow-host": "Python tests; the device is idle before each line of a test",
    "try-dev": "the setup for contributors",
    "pythons": "a build and an import with each other version of CPython",
    "coverage": "the share of lines that the tests run",
    "test-undefined": "Python tests, the extension built with UBSan",
    "test-address": "Python tests, the extension built with ASan",
    "test-thread": "Python tests, the extension built with TSan",
    "mutants": "bugs planted in the C++ core, which the tests have to notice",
    "versions": "Python tests with each other version of torch",
}
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
    """Return the table of a night's steps, and what it did not run or did not have."""
    if night is None:
        return "No night has been kept yet.\n"
    ended = [
        Ended(*(step[name] for name in ("step", "seconds", "status", "figure")))
        for step in night["steps"]
    ]
    rows = [
        [f"`{e.step}`", CONTENTS[e.step], f"{e.seconds:,.0f}", e.result, e.figure]
        for e in ended
    ]
    whole = sum(e.seconds for e in ended)
    rows.append(["all parts", "", f"{whole:,.0f}", "", ""])
    text = table(["part", "contents", "seconds", "result", "figure"], rows)
    text += f"\n{night['cores']} cores, {night['began']} UTC, commit "
    text += f"`{night['commit']}`.\n"
    known = {*night["not_run"], *(e.step for e in ended)}
    known |= {*IN_TURN} if known & {*IN_TURN} else set()
    if night["not_run"]:
        names = ", ".join(f"`{name}`" for name in night["not_run"])
        text += f"Not run: {names}.\n"
    words = {word for name in known for word in name.split()}
    newer = [f"`{name}`" for name in CONTENTS if not words & {*name.split()}]
    if newer:
        text += f"These parts are newer than this night: {', '.join(newer)}.\n"
    return text


def of_fuzz(run: Run | None) -> str:
    """Return the table of a run of the fuzzer, and how soon it finds planted bugs."""
    if run is None:
        return "No run has been kept yet.\n"
    planted = run["details"]["planted"]
    programs = [bug["sequences"] for bug in planted if bug["found"]]
    counts = run["counts"]
    text = (
        f"{counts['sequences']:,} programs, {counts['steps']:,} operations, of which "
    )
    text += f"{counts['steps that raised']:,} raised an error. "
    text += f"Unexpected differences from `cpu`: {len(run['findings'])}. "
    for name, count in counts.items():
        if name.startswith("known: "):
            kind = name.removeprefix("known: ")
            text += f"Expected differences of the kind `{kind}`: {count:,}. "
    text += f"The fuzzer finds {len(programs)} of {len(planted)} planted bugs"
    if programs:
        text += f", after a median of {statistics.median(programs):,.0f} programs "
        text += f"per bug (at most {max(programs):,})"
    if lost := [f"`{bug['name']}`" for bug in planted if not bug["found"]]:
        text += f". Not found: {', '.join(lost)}"
    about = f"{run['cores']} cores, {run['began']} UTC, commit `{run['commit']}`"
    return f"{text}.\n\n{about}.\n"


def of_watch(run: Run | None) -> str:
    """Return what programs held under Prometheus, and how soon each alert came."""
    if run is None:
        return "No watch has been kept yet.\n"
    began, ended = run["files"]
    heads = ["process", "memory, MiB", "file descriptors", "threads"]
    rows = []
    for name, (warm, last) in run["held"].items():
        pairs = zip(warm, last, strict=True)
        rows.append([name, *(f"{then:,} → {now:,}" for then, now in pairs)])
    text = f"Healthy programs for {run['minutes']:.0f} minutes: "
    text += f"{len(run['fired'])} alerts. Shared memory: {began[0]} files of "
    text += f"{began[1]} MiB, then {ended[0]} files of {ended[1]} MiB.\n\n"
    text += table(heads, rows)
    faults = [
        [*name.split(": "), f"{alert['after_s']:,.0f}", f"{alert['within_s']:,.0f}"]
        for name, alert in run["faults"].items()
    ]
    heads = ["planted fault", "alert", "fired after, s", "limit of its rule, s"]
    text += f"\n{table(heads, faults)}\nFalse alerts: {len(run['false'])}. "
    return f"{text}{run['cores']} cores, {run['began']}, commit `{run['commit']}`.\n"


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
    rows = []
    for run in runs:
        about = (f"{run['began']} UTC", f"`{run['commit']}`", run["torch"])
        rows.append([*about, f"{run['seconds'] / 60:,.0f}", *_cells(run["counts"])])
    minutes = sum(run["seconds"] for run in runs) / 60
    rows.append(["all runs", "", "", f"{minutes:,.0f}", *_cells(sums(runs))])
    heads = ["began", "commit", "torch", "minutes", *RUN]
    return table([*heads, "hangs", "wrong outcomes of all parts"], rows)


def _cells(counts: Mapping[str, float]) -> list[str]:
    """Return what the campaign's columns say of a run; its faults have an outcome each.

    A child that hung or died has not said whether a fault was injected.
    """
    wrong = counts[INJECTED] - counts[RAISED] - counts[RIGHT]
    shown = {**counts, "faults with a wrong outcome": wrong, LOST: counts["tasks lost"]}
    cells = [
        f"{shown[head]:,}" if counts[of] else "not run" for head, of in RUN.items()
    ]
    return [*cells, f"{counts['hangs']:,}", f"{counts['wrong outcomes']:,}"]


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
    why_of = {
        test: reasons.reason(test, message)
        for part in parts
        for tests in part["failures"].values()
        for test, message in tests.items()
    }
    if not why_of:
        return "No test fails on npu only.\n"
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
        runs = (r for part in parts for r in (part, part.get("again")) if r)
        when = "<br>".join(f"{run['ended']}, `{run['commit']}`" for run in runs)
        about = (suite["version"], OF_PARTS[len(parts)], when)
        bad = (f"{counts[key]:,}" for key in ("passed", "failed", "crashed", "hung"))
        others = (f"{counts[key]:,}" for key in ("not right on cpu either", "skipped"))
        source = f"{name} ({suite['source']})"
        rows.append([source, *about, *bad, _right(counts), *others])
        ran += parts
    heads = ["suite", "version", "part of the suite that was run"]
    heads += ["ended (UTC), commit", "passed"]
    heads += [f"{what} on npu only" for what in ("failed", "crashed", "hung")]
    heads.append("passed, of those that do not fail on cpu")
    heads += ["failed on both (not counted)", "skipped (not counted)"]
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
    text = f"{works} of {len(rows)} programs give the same results on npu as on cpu."
    return f"{text}\n\n{table(heads, cells)}"


PAGES = ("tested_with",)
BLOCKS: dict[str, Callable[[], str]] = {
    "nightly": lambda: of_night(kept("nightly")),
    "campaign": lambda: of_campaign(kept("campaign")),
    "fuzz": lambda: of_fuzz(kept("fuzz")),
    "watch": lambda: of_watch(kept("watch")),
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
    elif kind in ("nightly", "fuzz", "watch"):
        shutil.copyfile(OUT / f"{kind}.json", DOCS / f"{kind}.json")
    else:
        sys.exit(f"nightly, fuzz, watch, torture or versions; found: {kind}")


if __name__ == "__main__":
    for kind in sys.argv[1:]:
        keep(kind)
    write()
