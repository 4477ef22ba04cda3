"""Plants small mistakes in the engine, and counts those that the fast tests
notice. `python -m tests.mutants.run --help`; tests/mutants/README.md.
"""

import argparse
import fnmatch
import os
import random
import sys
import time
from pathlib import Path

from tests.mutants import judges, mutate
from tests.mutants.build import HANGS, Build
from tests.search.report import ROOT, Report, new_seed

# More than are wanted are planted, as the compiler does not take all.
SPARE = 1.5


def equivalent() -> list[tuple[str, str, str]]:
    """Return pattern of path, of line before and of line after, without reasons."""
    entries = []
    for line in (Path(__file__).parent / "equivalent.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        place, reason = line.rsplit(" # ", 1)
        path, before, after = (part.strip() for part in place.split(" @ "))
        assert reason.strip(), line
        entries.append((path, before, after))
    return entries


def excused(mutant: mutate.Mutant, entries: list[tuple[str, str, str]]) -> bool:
    def like(text: str, pattern: str) -> bool:
        # Brackets are C++'s here, not fnmatch's.
        return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))

    return any(
        like(mutant.path, path)
        and like(mutant.before, before)
        and like(mutant.after, after)
        for path, before, after in entries
    )


def drawn(
    folder: str, orders: bool, count: int, args: argparse.Namespace
) -> list[mutate.Mutant]:
    """Return a folder's sample, in the order of the seed."""
    entries = equivalent()
    candidates = [
        m
        for room in judges.WITH.get(folder, (folder,))
        for m in mutate.in_folder(ROOT, room)
        if m.is_order == orders
        and not excused(m, entries)
        and (not args.only or args.only in str(m))
    ]
    # By folder: which folders are run does not change what a seed means.
    kind = "orders " if orders else ""
    draw = random.Random(f"{args.seed} {kind}{folder}")
    draw.shuffle(candidates)
    if args.files:
        # Those of the first mutants: a file's chance is as large as its share.
        files = list(dict.fromkeys(m.path for m in candidates))[: args.files]
        candidates = [m for m in candidates if m.path in files]
    return candidates[: int(SPARE * count) + 3]


def noticed_by(build: Build, folder: str, number: int, mutant: mutate.Mutant) -> str:
    """Return which tests notice it: a name, "" for none."""
    suites = judges.suites_of(folder, mutant.path)
    if mutant.is_order:
        # The processor keeps most orders anyway: who cannot see them is not asked.
        modelled = [suite for suite in suites if suite == judges.MODEL]
        under_tsan = [f"{suite}:thread" for suite in judges.UNDER_TSAN[folder]]
        suites = (*modelled, *under_tsan)
    for suite in suites:
        if number in build.reached[suite]:
            ok, out = build.suite(suite, number)
            if not ok:
                return _first_failure(suite, out)
    if mutant.is_order:
        return ""
    ok, out = build.pytest(folder, number)
    return "" if ok else _first_failure("pytest", out)


def _first_failure(suite: str, out: str) -> str:
    for line in out.splitlines():
        if line.startswith("FAILED"):
            return f"{suite}: {line.removeprefix('FAILED').strip()[:100]}"
        if "ThreadSanitizer: " in line:
            return f"{suite}: {line.split('ThreadSanitizer: ')[1][:100]}"
    return f"{suite}: {out if out == HANGS else 'dies'}"


def run(args: argparse.Namespace) -> int:
    print(f"seed {args.seed}: again with --seed {args.seed}", flush=True)
    report = Report("mutants", args.seed, told=("planted", "noticed"))
    began = time.monotonic()
    samples = {
        (folder, orders): mutate.without_overlaps(drawn(folder, orders, count, args))
        for orders, count in ((False, args.per_folder), (True, args.orders))
        for folder in args.folders
        if count and (not orders or judges.sees_orders(folder))
    }
    everything = mutate.without_overlaps(
        [m for sample in samples.values() for m in sample]
    )
    numbered = dict(enumerate(everything, 1))
    numbers = {m: n for n, m in numbered.items()}
    paths = {(f, m.path) for (f, _), sample in samples.items() for m in sample}
    suites = sorted({s for place in paths for s in judges.suites_of(*place)})
    build = Build(args.work, args.jobs)
    build.numbers = len(numbered)
    refused = build.plant(numbered, suites)
    for suite in suites:
        build.run_suite(suite)
    print(f"built after {time.monotonic() - began:.0f} s", flush=True)
    rows: list[dict[str, str]] = []
    for place, (folder, orders) in enumerate(samples):
        if orders:
            under_tsan = judges.UNDER_TSAN[folder]
            build.build_under_tsan(under_tsan)
            for suite in under_tsan:
                build.run_suite(f"{suite}:thread")
        else:
            build.run_pytest(folder)
        # What one does not use of its share of the time, the others have.
        now = time.monotonic()
        left = began + 60 * args.minutes - now
        until = now + left / (len(samples) - place)
        planted = [
            m
            for m in samples[folder, orders]
            if m in numbers and numbers[m] not in refused
        ]
        judged = {}
        for mutant in planted[: args.orders if orders else args.per_folder]:
            if time.monotonic() > until:
                break
            judged[mutant] = _judged(build, folder, numbers[mutant], mutant)
        if not orders:
            for mutant, row in judged.items():
                if not row["by"] and time.monotonic() < until:
                    ok, out = build.pytest_all(folder, numbers[mutant])
                    row["by"] = "" if ok else _first_failure("all of pytest", out)
                    print(f"{mutant}\n  again: {row['by'] or 'SURVIVES'}", flush=True)
        rows += judged.values()
        _tell(report, rows)
    for row in rows:
        if not row["by"]:
            place = row["mutant"].split(": ")[0]
            words = f"--folders {row['folder']} --only {place}: --seed {args.seed}"
            again = f"python -m tests.mutants.run {words}"
            report.find(f"survives: {row['mutant']}", again=again)
    report.end()
    # A folder with good tests is no excuse for another.
    folders = {row["folder"] for row in rows if row["kind"] == "mistakes"}
    shares = [_share(report, folder) for folder in folders]
    return int(min(shares, default=0.0) < args.least)


def _judged(
    build: Build, folder: str, number: int, mutant: mutate.Mutant
) -> dict[str, str]:
    began = time.monotonic()
    by = noticed_by(build, folder, number, mutant)
    verdict = f"killed by {by}" if by else "SURVIVES"
    print(f"{mutant}\n  {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    kind = "orders" if mutant.is_order else "mistakes"
    return {"folder": folder, "kind": kind, "mutant": str(mutant), "by": by}


def _tell(report: Report, rows: list[dict[str, str]]) -> None:
    """Count those that were planted and noticed, of each folder and kind, too."""
    report.counts = dict.fromkeys(report.told, 0)
    for row in rows:
        of = f"{row['folder']}, {row['kind']}"
        for name in ("planted", "noticed") if row["by"] else ("planted",):
            for key in (name, f"{of}: {name}"):
                report.counts[key] = report.counts.get(key, 0) + 1
    report.details = {"mutants": rows}
    report.write()


def _share(report: Report, folder: str) -> float:
    of = f"{folder}, mistakes"
    return report.counts.get(f"{of}: noticed", 0) / report.counts[f"{of}: planted"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folders", nargs="+", default=judges.FOLDERS, choices=judges.FOLDERS
    )
    parser.add_argument("--per-folder", type=int, default=40, metavar="N")
    parser.add_argument("--orders", type=int, default=10, metavar="N", help="a folder")
    parser.add_argument("--minutes", type=float, default=60, help="of all folders")
    parser.add_argument("--seed", default=str(new_seed()))
    parser.add_argument(
        "--files", type=int, metavar="N", help="of so many files of each folder only"
    )
    parser.add_argument("--only", metavar="TEXT", help="in 'path:line: operator: ...'")
    work = ROOT / "build" / "mutants"
    parser.add_argument("--work", type=lambda p: Path(p).resolve(), default=work)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--least", type=float, default=0.9, help="share of each folder to be killed"
    )
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
