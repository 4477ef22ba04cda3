"""Plants small mistakes in the engine, one at a time, and counts those that the
fast tests notice. `python -m tests.mutants.run --help`; tests/mutants/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.mutants import mutate

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("csrc", "npu_dispatch", "tests", "bench", "examples", "docs")
COPIED_FILES = ("CMakeLists.txt", "pyproject.toml", "README.md", "CONTRIBUTING.md")
FOLDERS = ("taskqueue", "memory", "ops", "graph", "sanitizer")

# The C++ suites of a folder first; none knows of operators.
SUITES = {
    "taskqueue": (
        *("taskqueue", "engine", "interop", "placement", "observe"),
        *("steady", "graph"),
        *("interrupted", "sanitizer", "memory"),
    ),
    "memory": ("memory", "steady", "graph"),
    "graph": ("graph", "interrupted", "steady"),
    "sanitizer": ("sanitizer",),
    "ops": (),
}
# A folder stands for those that its tests are of, too.
WITH = {"taskqueue": ("taskqueue", "engine", "interop", "placement", "observe")}
# Half a minute of interleavings, for what they are of.
MODEL = "model"
MODELLED = ("ring.h", "sequence.h", "sole_user.h", "parking.h")
# What is asked when they found nothing: the quickest first.
PYTHON = {
    "taskqueue": (
        "unit/test_streams.py unit/test_events.py unit/test_errors.py "
        "api/test_external.py unit/test_stats.py trace/test_trace.py "
        "trace/test_torch_profiler.py aio/test_await.py api/test_fault.py "
        "api/test_waits.py graphs/test_replay.py"
    ),
    "memory": (
        "unit/test_memory.py api/test_memory.py api/test_alloc_conf.py "
        "unit/test_pinned_order.py unit/test_stats.py graphs/test_replay.py"
    ),
    "graph": "graphs api/test_switches.py",
    "sanitizer": (
        "sanitizer/test_switch.py races/test_races.py sanitizer/test_explore.py "
        "sanitizer/test_explore_waits.py sanitizer/test_explore_graphs.py "
        "sanitizer/test_random_programs.py"
    ),
    "ops": (
        "ecosystem/test_shapes.py::test_each_shape_gives_what_cpu_gives "
        "unit/test_ops.py ecosystem/test_result_layouts.py ecosystem/test_overlap.py "
        "ecosystem/test_written_lists.py ecosystem/test_custom_ops.py "
        "ecosystem/test_layouts.py unit/test_plan_eviction.py "
        "ecosystem/test_shapes.py::test_no_shape_is_corrected_by_a_run_on_zeros "
        "unit/test_result_memory.py ecosystem/test_half_products.py "
        "ecosystem/test_foreach_kernels.py unit/test_random.py ecosystem/test_math.py "
        "ecosystem/test_resize.py unit/test_scratch_memory.py unit/test_errors.py "
        "ecosystem/test_autograd.py ecosystem/test_nested.py graphs/test_replay.py"
    ),
}
# A mutant that takes this many times as long as the tree itself hangs.
PATIENCE, LEAST_S, LEAST_SUITE_S = 3, 20, 8


def call(
    command: Iterable[str | Path],
    cwd: Path,
    timeout: float | None = None,
    **env: str,
) -> tuple[bool, str]:
    """Run it with all that it starts; whether it ended well in time, its output."""
    child = subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, _ = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return False, "hangs"
    except BaseException:  # Ctrl-C
        os.killpg(child.pid, signal.SIGKILL)
        raise
    if child.returncode:
        # What a dead test has left running.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return child.returncode == 0, out


def must(result: tuple[bool, str]) -> None:
    ok, out = result
    if not ok:
        sys.exit(f"fails without any mutant:\n{out[-4000:]}")


def copy_tree(tree: Path) -> None:
    """Bring the copy up to date; files that are the same keep their times."""
    tree.mkdir(parents=True, exist_ok=True)
    for folder in COPIED:
        _copy_folder(ROOT / folder, tree / folder)
    for name in COPIED_FILES:
        _copy_file(ROOT / name, tree / name)


def _copy_folder(source: Path, target: Path) -> None:
    wanted = {p.relative_to(source) for p in source.rglob("*") if p.is_file()}
    wanted = {p for p in wanted if p.suffix not in {".so", ".pyc"}}
    for path in target.rglob("*"):
        kept = path.is_dir() or path.suffix in {".so", ".pyc"}
        if not kept and path.relative_to(target) not in wanted:
            path.unlink()
    for path in wanted:
        _copy_file(source / path, target / path)


def _copy_file(source: Path, target: Path) -> None:
    if target.exists() and target.read_bytes() == source.read_bytes():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    shutil.copymode(source, target)


class Build:
    """A copy and its two builds: the core with its C++ tests, the extension."""

    def __init__(self, work: Path, python: bool, jobs: int) -> None:
        self.tree, self.site = work / "tree", work / "site"
        self.core_build, self.extension_build = work / "core", work / "py"
        self.python, self.jobs = python, jobs
        self.seconds: dict[str, float] = {}
        tools = Path(sys.executable).parent
        self.cmake = shutil.which("cmake", path=str(tools)) or "cmake"

    def configure(self) -> None:
        copy_tree(self.tree)
        command = [self.cmake, "-S", self.tree, "-G", "Ninja"]
        debug = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1"]
        core = ["-B", self.core_build, "-DNPU_CORE_ONLY=ON", *debug]
        must(call([*command, *core], self.tree))
        if not self.python:
            return
        extension = ["-B", self.extension_build]
        python = f"-DPython_EXECUTABLE={sys.executable}"
        must(call([*command, *extension, python], self.tree))
        # The copy comes before an editable installation, for children too.
        self.site.mkdir(exist_ok=True)
        (self.site / "sitecustomize.py").write_text(
            "import sys\n"
            "sys.meta_path[:] = [f for f in sys.meta_path\n"
            "                    if not type(f).__module__.startswith('_editable')]\n"
            f"sys.path.insert(0, {str(self.tree)!r})\n"
        )

    def core(self, suites: Iterable[str], **env: str) -> tuple[bool, str]:
        targets = [f"{suite}_tests" for suite in suites]
        if not targets:
            return True, ""
        return self._build(self.core_build, targets, **env)

    def extension(self, **env: str) -> tuple[bool, str]:
        ok, out = self._build(self.extension_build, ["_C"], **env)
        if ok:
            (built,) = self.extension_build.rglob("_C.*.so")
            # A new file: processes of the last mutant may still use the old one.
            fresh = self.tree / "npu_dispatch" / f"{built.name}.new"
            shutil.copyfile(built, fresh)
            fresh.rename(fresh.with_name(built.name))
        return ok, out

    def _build(self, where: Path, targets: list[str], **env: str) -> tuple[bool, str]:
        command = [self.cmake, "--build", where, "-j", str(self.jobs), "--target"]
        return call([*command, *targets], self.tree, **env)

    def suite(self, name: str) -> tuple[bool, str]:
        path = self.core_build / "tests" / "cpp" / f"{name}_tests"
        return self._timed(name, [path, "-x"], LEAST_SUITE_S)

    def pytest(self, folder: str) -> tuple[bool, str]:
        tests = [f"tests/{path}" for path in PYTHON[folder].split()]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        # Most hang where they hang at once; a single test has less patience.
        command += ["-o", "timeout=60", "--tb=line"]
        site = os.pathsep.join([str(self.site), os.environ.get("PYTHONPATH", "")])
        env = {"PYTHONPATH": site.rstrip(os.pathsep)}
        return self._timed(f"pytest {folder}", [*command, *tests], LEAST_S, **env)

    def _timed(
        self, name: str, command: Iterable[str | Path], least_s: float, **env: str
    ) -> tuple[bool, str]:
        limit = None
        if name in self.seconds:
            limit = max(least_s, PATIENCE * self.seconds[name])
        began = time.monotonic()
        result = call(command, self.tree, timeout=limit, **env)
        if name not in self.seconds:
            self.seconds[name] = time.monotonic() - began
        return result


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


def suites_of(folder: str, path: str) -> tuple[str, ...]:
    modelled = path.rsplit("/", 1)[1] in MODELLED
    return (*SUITES[folder], MODEL) if modelled else SUITES[folder]


def noticed_by(build: Build, folder: str, mutant: mutate.Mutant) -> str:
    """Return which tests notice it: a name, "" for none, "-" for the compiler."""
    suites = suites_of(folder, mutant.path)
    # What ccache keeps of mutants nobody asks for again.
    if not build.core(suites, CCACHE_READONLY="1")[0]:
        return "-"
    for suite in suites:
        ok, out = build.suite(suite)
        if not ok:
            return _first_failure(suite, out)
    if not build.python:
        return ""
    if not build.extension(CCACHE_READONLY="1")[0]:
        return "-"
    ok, out = build.pytest(folder)
    return "" if ok else _first_failure("pytest", out)


def _first_failure(suite: str, out: str) -> str:
    for line in out.splitlines():
        if line.startswith("FAILED"):
            return f"{suite}: {line.removeprefix('FAILED').strip()[:100]}"
    return f"{suite}: {'hangs' if out == 'hangs' else 'dies'}"


def run(args: argparse.Namespace) -> int:
    print(f"seed {args.seed}: again with --seed {args.seed}", flush=True)
    began = time.monotonic()
    build = Build(args.work, not args.no_python, args.jobs)
    build.configure()
    suites = sorted({suite for folder in args.folders for suite in SUITES[folder]})
    suites += [MODEL] * ("taskqueue" in args.folders)
    must(build.core(suites))
    if build.python:
        must(build.extension())
    for suite in suites:
        must(build.suite(suite))
    entries, rows = equivalent(), []
    for place, folder in enumerate(args.folders):
        # What one does not use of its share of the time, the others have.
        now = time.monotonic()
        left = began + 60 * args.minutes - now
        until = now + left / (len(args.folders) - place)
        if build.python:
            must(build.pytest(folder))
        rows += _folder(build, folder, entries, until, args)
        (args.work / "results.json").write_text(json.dumps(rows, indent=1))
    return _report(rows, args)


def _folder(
    build: Build,
    folder: str,
    entries: list[tuple[str, str, str]],
    until: float,
    args: argparse.Namespace,
) -> list[dict[str, str]]:
    candidates = [
        m
        for room in WITH.get(folder, (folder,))
        for m in mutate.in_folder(build.tree, room)
        if not excused(m, entries) and (not args.only or args.only in str(m))
    ]
    # By folder: which folders are run does not change what a seed means.
    random.Random(f"{args.seed} {folder}").shuffle(candidates)
    rows: list[dict[str, str]] = []
    planted = 0
    for mutant in candidates:
        if planted == args.per_folder or time.monotonic() > until:
            break
        file = build.tree / mutant.path
        text = file.read_text()
        file.write_text(mutant.apply(text))
        began = time.monotonic()
        try:
            by = noticed_by(build, folder, mutant)
        finally:
            file.write_text(text)
        planted += by != "-"
        verdict = {"": "SURVIVES", "-": "does not compile"}.get(by, f"killed by {by}")
        print(f"{mutant}\n  {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
        rows.append({"folder": folder, "mutant": str(mutant), "by": by})
    return rows


def _report(rows: list[dict[str, str]], args: argparse.Namespace) -> int:
    print("\n| folder | killed | planted | share |\n|---|---|---|---|")
    shares = []
    for folder in args.folders:
        planted = [r for r in rows if r["folder"] == folder and r["by"] != "-"]
        killed = sum(bool(r["by"]) for r in planted)
        shares += [killed / len(planted)] if planted else []
        share = f"{100 * shares[-1]:.0f} %" if planted else ""
        print(f"| `{folder}` | {killed} | {len(planted)} | {share} |")
    for row in rows:
        if not row["by"]:
            print(f"survives: {row['mutant']}")
    print(f"seed {args.seed}")
    # A folder with good tests is no excuse for another.
    return int(min(shares, default=0.0) < args.least)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folders", nargs="+", default=FOLDERS, choices=FOLDERS)
    parser.add_argument("--per-folder", type=int, default=40, metavar="N")
    parser.add_argument("--minutes", type=float, default=25, help="of all folders")
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--only", metavar="TEXT", help="in 'path:line: operator: ...'")
    parser.add_argument("--no-python", action="store_true", help="C++ suites only")
    work = ROOT / "build" / "mutants"
    parser.add_argument("--work", type=lambda p: Path(p).resolve(), default=work)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--least", type=float, default=0.9, help="share of each folder to be killed"
    )
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
