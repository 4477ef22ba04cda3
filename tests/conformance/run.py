"""Compare the device with cpu over PyTorch's OpInfo database.

    python -m tests.conformance.run          a third, and operators that changed
    python -m tests.conformance.run --all    every operator, on new samples

Without --all the third and the seed of the samples are the same on each run.

The last line tells how many operators were checked and how many failed. The exit
status is 1 when an operator fails that impossible.txt does not excuse, when nothing
of an operator was compared that unchecked.txt does not list, or when an entry of
either list says what is not so.
"""

import argparse
import importlib.util
import os
import sys
import warnings
from pathlib import Path

from tests.conformance.check import judge_by_lists
from tests.search.report import Report

ALL_DTYPES = "float32,float64,int64,bool,bfloat16,float16,complex64"
BACKWARD_DTYPES = "float32,float64,bfloat16,float16,complex64"
VARIANTS = "fwd,inplace,out,bwd,again,noncontig,layouts,wrong_calls"
NEEDED = ("expecttest", "numpy", "scipy")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--all", action="store_true", help="every operator")
    add("--ops", metavar="REGEX", help="only operators whose full name matches")
    add("--base", metavar="COMMIT", help="operators changed since then are checked")
    add("--seed", type=int, help="of the samples; with --all by default a new one")
    add("--dtypes", default=ALL_DTYPES)
    add("--backward-dtypes", default=BACKWARD_DTYPES)
    add("--variants", default=VARIANTS, help="what to compare of each operator")
    add("--samples", type=int, default=3, help="for each operator and dtype")
    add("--trial-limit", type=int, help="elements from which a call counts as large")
    add("--strict", action="store_true", help="strides, and broadcasts in place, too")
    add("--device", default="npu")
    add("--jobs", type=int, default=min(os.cpu_count() or 1, 16))
    add("--limit", type=float, default=120, help="seconds for one operator")
    add("--json", type=Path, help="instead of out/conformance.json")
    add("--list", action="store_true", help="print the selection, check nothing")
    return parser.parse_args(arguments)


def missing() -> list[str]:
    """Return what OpInfo needs, for all of its entries, and is not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def main() -> int:
    options = parse()
    if lacking := missing():
        print(f"conformance: not installed: {', '.join(lacking)}", file=sys.stderr)
        # A skipped check in CI would look like one that passed.
        return 2 if os.environ.get("CI") == "1" else 0
    warnings.simplefilter("ignore")
    # Imports OpInfo: four seconds, which --help is spared.
    from tests.conformance.session import Session

    session = Session(options)
    names = session.select()
    if options.list:
        print("\n".join(names))
        return 0
    report = Report("conformance", session.seed, path=options.json)
    run = session.check(names)
    run["full"] = (
        options.all
        and not options.ops
        and (
            {*ALL_DTYPES.split(",")} <= {*options.dtypes.split(",")}
            and {*VARIANTS.split(",")} <= {*options.variants.split(",")}
        )
    )
    verdict = judge_by_lists(run)
    for what, text in verdict.complaints:
        words = f"--seed {session.seed} --ops '^{what.split()[0]}$'"
        again = f"python -m tests.conformance.run {words}" if text else ""
        report.find(what, text, again=again)
    if verdict.nothing_to_check:
        print(f"nothing to check: {', '.join(verdict.nothing_to_check)}")
    report.counts = {"operators checked": verdict.checked, "failed": verdict.failed}
    report.details = run
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
