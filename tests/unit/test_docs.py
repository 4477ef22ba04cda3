"""Every example and command in the documents runs, examples without a race.

The commands of a page run in its order and in one folder, where the page's files are
(support/documents.py). The words that stand for something are filled in: SCRIPT is a
small training, and PID or a number the processes that the page has started, in their
order, or one that trains.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import Command, blocks, commands
from interpreter import Forked, Spawned, environment

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Those that show a race say what they find: sanitizer/test_docs.py. The files of a page
# are run by its commands, below.
EXAMPLES = {
    f"{page.name}#{number}": block.text
    for page in PAGES
    for number, block in enumerate(
        block
        for block in blocks(page)
        if block.language == "python" and not block.text.startswith("# finds: ")
    )
    if not block.marks.keys() & {"not run", "file"}
}
MODEL = "import torch\nmake_model = lambda: torch.nn.Linear(32, 32)\n"
# What an example takes for granted, before it.
BEFORE = {
    "asyncio.md#0": "import asyncio",
    "compile.md#0": f"{MODEL}x = torch.ones(2, 32, device='npu')",
    "compile.md#1": f"""{MODEL}
import npu_dispatch
model = make_model().npu()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
x, y = torch.ones(4, 32).npu(), torch.zeros(4, dtype=torch.long).npu()
loader = [(x, y)] * 4
""",
    "graphs.md#0": f"{MODEL}request = torch.ones(1, 32)",
    "graphs.md#1": """
import torch
g, other = torch.npu.NPUGraph(), torch.npu.Stream()
x, y, z = (torch.ones(3, device="npu") for _ in range(3))
torch.npu.synchronize()
""",
    "tracing.md#0": f"""{MODEL}
model, x = make_model().npu(), torch.ones(2, 32, device="npu")
stream = torch.npu.current_stream()
""",
    "tracing.md#1": """
import torch
train_step = lambda: torch.ones(3, device="npu").mul_(2).sum().item()
""",
    # The page is about a real device.
    "plan.md#0": "import torch\ndef step(): pass\ntorch.cuda.synchronize = step",
}
AFTER = {
    "asyncio.md#0": """
net, stream = torch.nn.Linear(4, 2).npu(), torch.npu.Stream()
stream.wait_stream(torch.npu.current_stream())
batch = torch.ones(3, 4)
with torch.no_grad():
    scores = asyncio.run(classify(net, batch, stream))
torch.testing.assert_close(scores, net.cpu()(batch))
"""
}
ENVIRONMENT = {"torch_npu.md#0": {"NPU_DISPATCH_TORCH_NPU_ALIAS": "1"}}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_without_a_race(name: str, python, tmp_path: Path):
    # A file: operators and kernels ask for their source.
    program = tmp_path / "example.py"
    program.write_text(
        f"{BEFORE.get(name, '')}\n{EXAMPLES[name]}\n{AFTER.get(name, '')}"
    )

    done = python.run(
        str(program),
        env=environment(TORCH_NPU_SANITIZER="raise", **ENVIRONMENT.get(name, {})),
    )

    assert done.returncode == 0, done.stderr
    assert "npu sanitizer" not in done.stderr


def test_what_surrounds_an_example_has_one():
    assert {*BEFORE, *AFTER, *ENVIRONMENT} <= set(EXAMPLES)


SCRIPT = """
import torch
model = torch.nn.Linear(8, 1).npu()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.ones(4, 8).npu()).square().mean().backward()
    optimizer.step()
"""
RACE = """
import torch
x, s = torch.ones(1000, device="npu"), torch.npu.Stream()
with torch.npu.stream(s):
    x.mul_(2)
torch.npu.synchronize()
"""
LIVING = f"{SCRIPT}\ntorch.npu.synchronize(); print('ready', flush=True); input()"
# The words that stand for something.
WORDS = {
    "SCRIPT": "script.py",
    "MODULE": "module",
    "CMD": f"{sys.executable} script.py",
    "[ARGS]": "",
    "[PID...]": "",
}
# What is not run: a command of any page, or one of README.md, which has no marks.
NOT_RUN = {
    r".*\[OPTIONS\].*": "how a command is called, in general",
    r"(python -m )?pip install (npu_dispatch-\*\.whl|\.)": "distribution/",
    r"make .*": "the gate's own steps",
    r"npu-dispatch serve": "it serves until it is stopped: observability/",
    r"npu-dispatch ps, top, trace": "three commands in one line",
    r"npu-dispatch dump --all-ranks": "it needs ranks that wait: troubleshooting.md",
    r"npu-dispatch trace --all-ranks( FOLDER)?": "distributed/test_merged_trace.py",
    r"torchrun --nnodes 2 .*": "distributed/test_two_hosts.py",
    r"npu-dispatch sanitize -- bash .*": "sanitizer/test_processes.py",
}
SLOW = re.compile(r"examples/|calibrate|^pytest|\bslow\.py")
# The commands of all other pages are run at night.
FIRST_READ = {"README.md", "sanitizer.md", "troubleshooting.md"}
STATUS = re.compile(r"exit status (\d+)")


def is_run(command: Command) -> bool:
    if "not run" in command.block.marks:
        return False
    return not any(re.fullmatch(one, command.text) for one in NOT_RUN)


def is_slow(command: Command) -> bool:
    return bool(SLOW.search(command.text)) or "nightly" in command.block.marks


def pages(*, slow: bool) -> list[Path]:
    return [
        page
        for page in PAGES
        if any(is_run(c) and is_slow(c) is slow for c in commands(page))
    ]


class Reader:
    """Somebody who types what a page says, in a folder that has its files."""

    def __init__(self, folder: Path, forked: Forked, spawned: Spawned) -> None:
        self._folder, self._forked, self._spawned = folder, forked, spawned
        self._started: list[subprocess.Popen[str]] = []
        self._pids: dict[str, str] = {}  # by what the page calls them
        self._files: set[str] = set()  # that the page shows

    def prepare(self, page: Path) -> None:
        for name in ("script.py", "train.py", "module.py"):
            racy = page.name == "sanitizer.md"
            (self._folder / name).write_text(RACE if racy else SCRIPT)
        (self._folder / "test_nothing.py").write_text("def test_nothing(): pass")
        (self._folder / "examples").symlink_to(ROOT / "examples")
        for block in blocks(page):
            if name := block.marks.get("file"):
                self._files.add(name)
                (self._folder / name).write_text(block.text)

    def start(self, *argv: str) -> subprocess.Popen[str]:
        env = environment(PYTHONUNBUFFERED="1")
        with (self._folder / "started.txt").open("w") as log:
            started = subprocess.Popen(
                [sys.executable, *argv],
                env=env,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._started.append(started)
        return started

    def someone_trains(self) -> None:
        started = self.start("-c", LIVING)
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"

    def types(self, command: Command) -> None:
        text = command.text.split(" | -")[0]  # "--once | --json": either of them
        for word, meaning in WORDS.items():
            text = re.sub(rf"(?<!\S){re.escape(word)}(?!\S)", meaning, text)
        if "postmortem" in text and not self._started:
            self.someone_trains()
            self._started[0].kill()
            self._started[0].wait()
        text = re.sub(r"\bPID\b|(?<=dump )\d+", self._pid_of, text)
        background = text.endswith("&")
        env, argv = self._as_python(text.rstrip("& "))
        if background:
            if "serve" in argv and not self._started:
                self.someone_trains()  # The page asks the service about somebody.
            self.start(*argv)
            return
        asked = STATUS.search(command.aside)
        wanted = int(asked[1]) if asked else 0
        end = time.monotonic() + 120
        while True:
            done = self._run(env, argv) if argv else self._in_shell(text)
            if done.returncode == wanted:
                return
            # What was started in the background may not be ready.
            waits = self._started and time.monotonic() < end
            assert waits, f"{text}\n{done.stdout}\n{done.stderr}"

    def _pid_of(self, match: re.Match[str]) -> str:
        """Return a process of this page: the first that it names is the first."""
        name = match[0]
        if name not in self._pids:
            if len(self._pids) == len(self._started):
                self.someone_trains()
            self._pids[name] = str(self._started[len(self._pids)].pid)
        return self._pids[name]

    @staticmethod
    def _as_python(text: str) -> tuple[dict[str, str], list[str]]:
        """Return what Python is given; nothing where the command needs a shell."""
        if re.search(r"[|><;&`]|\$\(", text):
            return {}, []
        words = shlex.split(text)
        env = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            env[name] = value
        modules = {
            "npu-dispatch": "npu_dispatch",
            "pytest": "pytest",
            "torchrun": "torch.distributed.run",
        }
        if words[0] in modules:
            return env, ["-m", modules[words[0]], *words[1:]]
        return (env, words[1:]) if words[0] == "python" else ({}, [])

    def _run(
        self, env: dict[str, str], argv: list[str]
    ) -> subprocess.CompletedProcess[str]:
        # A file of the page has no race, unless the page looks for it.
        if self._files & set(argv) and "sanitize" not in argv:
            env = {"TORCH_NPU_SANITIZER": "raise", **env}
        forked = argv[:2] not in (["-m", "pytest"], ["-m", "torch.distributed.run"])
        python = self._forked if forked else self._spawned
        return python.run(*argv, env=environment(**env), cwd=self._folder, timeout=170)

    def _in_shell(self, text: str) -> subprocess.CompletedProcess[str]:
        env = environment()
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        return subprocess.run(
            ["bash", "-c", text],
            env=env,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )

    def leave(self) -> None:
        for one in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, 9)
            one.communicate()


@pytest.fixture
def reader(tmp_path: Path, python: Forked, fresh_python: Spawned) -> Iterator[Reader]:
    made = Reader(tmp_path, python, fresh_python)
    yield made
    made.leave()


def run_all(page: Path, reader: Reader, *, slow: bool) -> None:
    reader.prepare(page)
    for command in commands(page):
        if is_run(command) and (slow or not is_slow(command)):
            reader.types(command)


# Against hangs only: a page may have ten commands, and the machine be busy.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.name in FIRST_READ else pytest.mark.nightly)
        for page in pages(slow=False)
    ],
    ids=lambda page: page.name,
)
def test_the_commands_of_a_page_run(page: Path, reader: Reader):
    run_all(page, reader, slow=False)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", pages(slow=True), ids=lambda page: page.name)
def test_the_slow_commands_of_a_page_run(page: Path, reader: Reader):
    run_all(page, reader, slow=True)


def test_each_program_that_a_page_shows_as_a_file_is_run_by_its_commands():
    left = [
        (page.name, block.marks["file"])
        for page in PAGES
        for block in blocks(page)
        if block.language == "python"
        and "file" in block.marks
        and "not run" not in block.marks
        and not any(block.marks["file"] in c.text for c in commands(page) if is_run(c))
    ]

    assert left == []


def test_what_is_not_run_says_why():
    reasons = [
        block.marks["not run"]
        for page in PAGES
        for block in blocks(page)
        if "not run" in block.marks
    ]

    assert all(len(reason.split()) > 2 for reason in reasons)
