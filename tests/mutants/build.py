"""A copy of the tree with all mutants of a run in it, its builds, and its tests.

Three builds: the core with its C++ suites; the same under ThreadSanitizer, where
memory orders are asked for; the extension.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.mutants import judges, mutate
from tests.search import children
from tests.search.report import ROOT

sys.path.insert(0, str(ROOT / "tests" / "support"))
from interpreter import Process, Zygote

COPIED = (
    *("csrc", "npu_dispatch", "pytest_npu_dispatch", "tests", "bench", "examples"),
    *("docs", "tools"),
)
COPIED_FILES = ("CMakeLists.txt", "pyproject.toml", "README.md", "CONTRIBUTING.md")
# A mutant that takes this many times as long as the tree itself hangs.
PATIENCE, LEAST_S, LEAST_SUITE_S = 3, 20, 8
# Tests that reach a mutant are asked for about so long; then, if there is time, all.
ASKED_S = 20
HANGS = "hangs"  # instead of an output


# In a session of its own, so that all that it started can be ended.
PYTEST = (
    "import os, sys; os.setsid();import pytest; sys.exit(pytest.main(sys.argv[1:]))"
)


def call(
    command: Iterable[str | Path], cwd: Path, timeout: float | None = None, **env: str
) -> tuple[bool, str]:
    """Run it with all that it starts; whether it ended well in time, its output."""
    try:
        done = children.run([*command], timeout, cwd=cwd, **env)
    except subprocess.TimeoutExpired:
        return False, HANGS
    return done.returncode == 0, done.stdout + done.stderr


def must(result: tuple[bool, str]) -> None:
    ok, out = result
    if not ok:
        sys.exit(f"fails without any mutant:\n{out[-4000:]}")


def copy_tree(tree: Path, planted: dict[str, str]) -> None:
    """Bring the copy up to date; files that are the same keep their times."""
    tree.mkdir(parents=True, exist_ok=True)
    for folder in COPIED:
        source, target = ROOT / folder, tree / folder
        wanted = {p.relative_to(source) for p in source.rglob("*") if p.is_file()}
        wanted = {p for p in wanted if p.suffix not in {".so", ".pyc"}}
        for path in target.rglob("*"):
            kept = path.is_dir() or path.suffix in {".so", ".pyc"}
            if not kept and path.relative_to(target) not in wanted:
                path.unlink()
        for path in wanted:
            if f"{folder}/{path}" not in planted:
                _write(target / path, (source / path).read_bytes(), source / path)
    for name in COPIED_FILES:
        _write(tree / name, (ROOT / name).read_bytes(), ROOT / name)
    for name, text in planted.items():
        _write(tree / name, text.encode(), ROOT / name)


def _write(target: Path, content: bytes, like: Path) -> None:
    if target.exists() and target.read_bytes() == content:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    shutil.copymode(like, target)


@dataclasses.dataclass
class Test:
    """What is known of a test from its run without a mutant."""

    name: str
    seconds: float
    passed: bool
    reached: set[int]


class Build:
    def __init__(self, work: Path, jobs: int) -> None:
        # Builds lie in the copy as those of a clone lie in it, for ccache.
        self.work, self.tree = work, work / "tree"
        self.core_build, self.tsan_build, self.extension_build = (
            self.tree / "build" / name for name in ("core", "core-thread", "py")
        )
        self.jobs = jobs
        self.seconds: dict[str, float] = {}
        self.reached: dict[str, set[int]] = {}  # by suite
        self.tests: dict[str, list[Test]] = {}  # by folder
        tools = Path(sys.executable).parent
        self.cmake = shutil.which("cmake", path=str(tools)) or "cmake"

    def plant(
        self, numbered: dict[int, mutate.Mutant], suites: Iterable[str]
    ) -> set[int]:
        """Build all of them; return those that the compiler does not take."""
        refused: set[int] = set()
        configured = False
        while True:
            texts: dict[str, str] = {}
            for path in {m.path for m in numbered.values()}:
                of_file = {
                    n: m
                    for n, m in numbered.items()
                    if m.path == path and n not in refused
                }
                texts[path] = mutate.plant((ROOT / path).read_text(), of_file)
            copy_tree(self.tree, texts)
            if not configured:
                self._configure_all()
                configured = True
            out = self._build(self.core_build, [f"{suite}_tests" for suite in suites])
            if not out:
                out = self._build(self.extension_build, ["_C"])
            if not out:
                break
            more = _blamed(out, numbered) - refused
            if not more:
                sys.exit(f"does not build, for no mutant's sake:\n{out[-4000:]}")
            refused |= more
            print(f"{len(more)} are refused by the compiler", flush=True)
        (built,) = self.extension_build.rglob("_C.*.so")
        shutil.copyfile(built, self.tree / "npu_dispatch" / built.name)
        return refused

    def build_under_tsan(self, suites: Iterable[str]) -> None:
        """Build what was planted with ThreadSanitizer, too."""
        core = "-DNPU_CORE_ONLY=ON"
        self._configure(self.tsan_build, core, "-DNPU_SANITIZER=thread")
        out = self._build(self.tsan_build, [f"{suite}_tests" for suite in suites])
        must((not out, out))

    def _configure(self, build: Path, *options: str) -> None:
        places: list[str | Path] = ["-S", self.tree, "-B", build]
        must(call([self.cmake, *places, "-G", "Ninja", *options], self.tree))

    def _configure_all(self) -> None:
        self._configure(self.core_build, "-DNPU_CORE_ONLY=ON")
        # By a path below the copy, as in a clone with an environment of its own.
        environment = self.tree / ".venv"
        if not environment.is_symlink():
            environment.symlink_to(sys.prefix)
        python = f"-DPython_EXECUTABLE={environment}/bin/python"
        # The compiler by the name that installing calls it by, for ccache, too.
        compiler = shutil.which(sysconfig.get_config_var("CXX").split()[0])
        options = [python, "-DCMAKE_BUILD_TYPE=Release"]
        options += [f"-DCMAKE_CXX_COMPILER={compiler}"] if compiler else []
        self._configure(self.extension_build, *options)
        # The copy comes before an editable installation, for children too.
        site = self.work / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(
            "import sys\n"
            "sys.meta_path[:] = [f for f in sys.meta_path\n"
            "                    if not type(f).__module__.startswith('_editable')]\n"
            f"sys.path.insert(0, {str(self.tree)!r})\n"
        )

    def _build(self, where: Path, targets: list[str]) -> str:
        """Return what the compiler says against it; "" where nothing."""
        if not targets:
            return ""
        command: list[str | Path] = [
            self.cmake,
            "--build",
            where,
            "-j",
            str(self.jobs),
            "--target",
        ]
        began = time.monotonic()
        # The rest, too: all that it refuses is known at once.
        ok, out = call([*command, *targets, "--", "-k", "0"], self.tree)
        print(f"{where.name}: {time.monotonic() - began:.0f} s", flush=True)
        return "" if ok else out or "fails"

    def run_suite(self, name: str) -> None:
        """Run a C++ suite without a mutant: how long it takes, what it reaches."""
        with self._notes() as notes:
            began = time.monotonic()
            must(self._suite(name, None, NPU_MUTANTS_REACHED=str(notes)))
            self.seconds[name] = time.monotonic() - began
            self.reached[name] = {n for n, b in enumerate(notes.read_bytes()) if b}
        print(f"{name}: {self.seconds[name]:.1f} s", flush=True)

    def suite(self, name: str, mutant: int) -> tuple[bool, str]:
        limit = max(LEAST_SUITE_S, PATIENCE * self.seconds[name])
        return self._suite(name, limit, NPU_MUTANT=str(mutant))

    def _suite(self, name: str, limit: float | None, **env: str) -> tuple[bool, str]:
        """`name` ends in ":thread" for the suite under ThreadSanitizer."""
        suite, _, sanitizer = name.partition(":")
        build = self.tsan_build if sanitizer else self.core_build
        folder = build / "tests" / "cpp"
        if suite in judges.DRIVERS:
            env["NPU_DRIVER"] = str(folder / judges.DRIVERS[suite])
        env["TSAN_OPTIONS"] = "halt_on_error=1:atexit_sleep_ms=20"
        return call([folder / f"{suite}_tests", "-x"], self.tree, limit, **env)

    def run_pytest(self, folder: str) -> None:
        """Run the folder's Python tests without a mutant."""
        answer = self.work / f"tests_{folder}.json"
        answer.unlink(missing_ok=True)
        began = time.monotonic()
        with self._notes() as notes:
            _, out = self._pytest(
                ["-p", "tests.mutants.reached", *_paths(folder)],
                None,
                NPU_MUTANTS_REACHED=str(notes),
                NPU_MUTANTS_TESTS=str(answer),
            )
        self.seconds[f"pytest {folder}"] = time.monotonic() - began
        if not answer.exists():
            must((False, out))
        self.tests[folder] = [
            Test(name, test["seconds"], test["passed"], set(test["reached"]))
            for name, test in json.loads(answer.read_text()).items()
        ]
        failed = [t.name for t in self.tests[folder] if not t.passed]
        print(
            f"{len(self.tests[folder])} Python tests: "
            f"{self.seconds[f'pytest {folder}']:.0f} s; not asked, as they fail "
            f"without a mutant: {failed or 'none'}",
            flush=True,
        )

    def pytest(self, folder: str, mutant: int) -> tuple[bool, str]:
        """Those that reach it, of each file the cheapest first."""
        tests = self.tests[folder]
        reaching = _in_turn(
            [t for t in tests if t.name and t.passed and mutant in t.reached]
        )
        asked: list[Test] = []
        while reaching and sum(t.seconds for t in asked) < ASKED_S:
            asked.append(reaching.pop(0))
        if not asked:
            return True, ""
        start = self.seconds[f"pytest {folder}"] - sum(t.seconds for t in tests)
        limit = max(LEAST_S, PATIENCE * (start + sum(t.seconds for t in asked)))
        names = [t.name for t in asked]
        return self._pytest(["-x", *names], limit, NPU_MUTANT=str(mutant))

    def pytest_all(self, folder: str, mutant: int) -> tuple[bool, str]:
        """All of the folder, where any test reaches it.

        What a test reaches is not all that it depends on: a plan that an earlier test
        made is used by later ones.
        """
        tests = self.tests[folder]
        if not any(mutant in t.reached for t in tests):
            return True, ""
        failing = [f"--deselect={t.name}" for t in tests if not t.passed]
        limit = PATIENCE * self.seconds[f"pytest {folder}"]
        arguments = ["-x", *failing, *_paths(folder)]
        return self._pytest(arguments, limit, NPU_MUTANT=str(mutant))

    def _pytest(
        self, arguments: list[str], limit: float | None, **env: str
    ) -> tuple[bool, str]:
        # Most hang where they hang at once; a single test has less patience.
        options = ["-q", "-p", "no:cacheprovider", "-o", "timeout=60", "--tb=line"]
        argv = ["-c", PYTEST, *options, *arguments]
        # A file: a pipe would stay open in what a dead test has left running.
        with tempfile.TemporaryFile() as out:
            files = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            request = {"argv": argv, "env": {**self.env, **env}, "cwd": str(self.tree)}
            child = Process(self.zygote, {**request, "imports_torch": False}, **files)
            code = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(limit)
            if code != 0:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            out.seek(0)
            said = HANGS if code is None else out.read().decode(errors="replace")
            return code == 0, said

    @functools.cached_property
    def env(self) -> dict[str, str]:
        site = [str(self.work / "site"), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(site).rstrip(os.pathsep)
        # Teams that spin take the machine from whoever else is on it.
        return {"OMP_WAIT_POLICY": "passive", **os.environ, "PYTHONPATH": path}

    @functools.cached_property
    def zygote(self) -> Zygote:
        return Zygote({**self.env, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})

    @contextlib.contextmanager
    def _notes(self) -> Iterator[Path]:
        with tempfile.NamedTemporaryFile(dir=self.work) as notes:
            path = Path(notes.name)
            path.write_bytes(bytes(self.numbers + 1))
            yield path

    numbers = 0  # the largest number of a mutant


def _paths(folder: str) -> list[str]:
    return [f"tests/{path}" for path in judges.PYTHON[folder].split()]


def _in_turn(tests: list[Test]) -> list[Test]:
    rank: dict[str, int] = {}
    keyed = []
    for test in sorted(tests, key=lambda t: t.seconds):
        file = test.name.split("::")[0]
        rank[file] = rank.get(file, 0) + 1
        keyed.append((rank[file], test.seconds, test.name, test))
    return [test for *_, test in sorted(keyed, key=lambda k: k[:3])]


def _blamed(out: str, numbered: dict[int, mutate.Mutant]) -> set[int]:
    """Return the mutants in whose lines the compiler finds errors."""
    errors = [line for line in out.splitlines() if " error: " in line]
    for lines in (errors, out.splitlines()):
        places = set(re.findall(r"(csrc/[\w/.]+):(\d+):\d+:", "\n".join(lines)))
        blamed = {
            n
            for n, m in numbered.items()
            if any(p == m.path and int(at) in m.lines for p, at in places)
        }
        if blamed:
            return blamed
    return set()
