"""The command npu-dispatch, and what `run` tells at its end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from npu_dispatch.cli import COMMANDS, main
from npu_dispatch.observe.judge.summary import Steps
from npu_dispatch.words import counted


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for one in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), one)
            assert below is not None
            yield from commands(below, f"{name} {one}")


def test_help_explains_each_command_and_each_option():
    found = list(commands(main, "npu-dispatch"))
    unexplained = [name for name, command in found if not command.help]
    unexplained += [
        f"{name} {option.opts[0]}"
        for name, command in found
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]

    assert unexplained == []


def test_the_list_of_commands_has_each_ones_first_sentence():
    found = dict(commands(main, "npu-dispatch"))

    assert {name: says for name, (_, says) in COMMANDS.items()} == {
        name: found[f"npu-dispatch {name}"].get_short_help_str(limit=200)
        for name in COMMANDS
    }


def test_commands_that_run_a_program_know_the_same_names_of_the_device():
    found = dict(commands(main, "npu-dispatch"))
    names = {
        name: {
            one.opts[0]: one.help
            for one in found[f"npu-dispatch {name}"].params
            if one.opts[0] in ("--cuda", "--torch-npu")
        }
        for name in ("run", "sanitize", "plan")
    }

    assert len(names["run"]) == 2
    assert names["run"] == names["sanitize"] == names["plan"]


@pytest.fixture
def npu_dispatch_run(tmp_path: Path, python, child_environment):
    def run(program: str, *args: str, options: tuple[str, ...] = ()):
        script = tmp_path / "script.py"
        script.write_text(program)
        command = ["-m", "npu_dispatch", "run", *options, str(script)]
        return python.run(*command, *args, env=child_environment(COLUMNS="200"))

    return run


def test_the_script_is_main_and_has_what_it_needs(npu_dispatch_run, tmp_path):
    (tmp_path / "neighbour.py").write_text("fact = 7")
    program = """
import sys, torch, neighbour
print(__name__, sys.argv[1:], torch.ones(2, device="npu").tolist(), neighbour.fact)
"""
    result = npu_dispatch_run(program, "-x", "--y=1")

    assert result.returncode == 0, result.stderr
    assert result.stdout == "__main__ ['-x', '--y=1'] [1.0, 1.0] 7\n"


@pytest.mark.parametrize(
    ("program", "status"),
    [("raise SystemExit(3)", 3), ("import sys; sys.exit()", 0), ("exit('no')", 1)],
)
def test_the_exit_status_is_the_scripts(npu_dispatch_run, program, status):
    assert npu_dispatch_run(program).returncode == status


def test_an_exception_shows_the_scripts_frames_only(npu_dispatch_run):
    result = npu_dispatch_run("def f():\n    1 / 0\nf()")

    assert result.returncode == 1
    assert "ZeroDivisionError" in result.stderr
    assert "line 2, in f" in result.stderr
    assert "runpy" not in result.stderr


def test_a_library_that_took_the_cpu_is_named(npu_dispatch_run):
    on_cpu = "import accelerate, torch; torch.ones(2) + 1"
    on_npu = "import accelerate, torch; torch.ones(2, device='npu') + 1"
    told = "accelerate found no npu and the program launched nothing on it"

    assert told in npu_dispatch_run(on_cpu).stderr
    assert told not in npu_dispatch_run(on_npu).stderr
    assert told not in npu_dispatch_run("import torch").stderr
    assert told not in npu_dispatch_run(on_cpu, options=("--torch-npu",)).stderr


def test_a_module_runs_and_all_behind_it_is_its_own(tmp_path: Path, python):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("fact = 7")
    (tmp_path / "pack" / "__main__.py").write_text("""
import sys, torch
from . import fact
print(__name__, fact, sys.argv[1:], torch.ones(2, device="npu").sum().item())
def f(): 1 / 0
f()
""")
    options = ["--quiet", "-m", "pack", "--quiet", "-m", "x"]

    result = python.run("-m", "npu_dispatch", "run", *options)

    assert result.stdout.strip() == "__main__ 7 ['--quiet', '-m', 'x'] 2.0"
    assert result.returncode == 1
    assert "line 5, in f" in result.stderr
    assert "runpy" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-m", "no_such_module"], "No module named no_such_module"),
        (["no_such_file.py"], "'no_such_file.py' does not exist"),
        ([], "Missing argument 'SCRIPT', or -m MODULE"),
        (["-m"], "-m"),
    ],
)
def test_what_cannot_be_run_is_named(python, arguments, says):
    result = python.run("-m", "npu_dispatch", "run", *arguments)

    assert result.returncode != 0
    assert says in result.stderr


CUDA_PROGRAM = """
import sys, torch, multiprocessing
def worker():
    print("child", torch.ones(2).cuda().is_cuda, flush=True)
if __name__ == "__main__":
    x = torch.ones(2, device="cuda")
    print(torch.version.cuda is not None, x.is_cuda, sys.warnoptions, flush=True)
    child = multiprocessing.get_context("spawn").Process(target=worker)
    child.start(); child.join()
"""


def test_one_flag_redirects_cuda(npu_dispatch_run):
    result = npu_dispatch_run(CUDA_PROGRAM, options=("--cuda", "--quiet"))

    assert result.stdout.splitlines() == ["True True []", "child True"], result.stderr


def test_cuda_and_torch_npu_may_both_be_asked_for(npu_dispatch_run):
    program = "import torch_npu, torch; print(torch.ones(1).cuda().is_npu)"

    result = npu_dispatch_run(program, options=("--cuda", "--torch-npu", "--quiet"))

    assert (result.stdout, result.stderr) == ("True\n", "")


RACE_BY_OTHER_NAMES = """
import torch_npu, torch
s = torch.cuda.Stream()
x = torch.ones(1000, device="cuda")
with torch.cuda.stream(s):
    y = x + 1
torch.npu.synchronize()
"""


def test_the_sanitizer_knows_other_names(python, child_environment, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(RACE_BY_OTHER_NAMES)
    options = ["--cuda", "--torch-npu", "--json"]
    command = ["-m", "npu_dispatch", "sanitize", *options, str(script)]

    result = python.run(*command, env=child_environment(TORCH_NPU_SANITIZER="0"))

    assert result.returncode == 66, result.stderr
    assert "script.py:6" in result.stderr
    assert "npu sanitizer: 1 finding\n" in result.stderr
    assert len(json.loads(result.stdout)) == 1


def test_an_unseen_failure_on_the_device_fails_the_run(npu_dispatch_run):
    program = """
import torch
w, i = torch.ones(4, 2).npu(), torch.tensor([9]).npu()
torch.nn.functional.embedding(i, w)
"""
    result = npu_dispatch_run(program)

    assert result.returncode == 1
    assert "index out of range" in result.stderr


def test_quiet_prints_no_summary(npu_dispatch_run):
    assert "launches" not in npu_dispatch_run("pass", options=("--quiet",)).stderr


@pytest.mark.parametrize(
    "command",
    [
        ["run", "-o", "{}"],
        ["sanitize", "-o", "{}"],
        ["sanitize", "--sarif", "{}"],
        ["trace", "-o", "{}"],
        ["plan", "-o", "{}"],
        ["plan", "--html", "{}"],
    ],
)
def test_a_file_that_cannot_be_written_is_refused_at_first(tmp_path, command):
    (tmp_path / "file").touch()
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit('it ran')")
    for where, why in (("file/x.json", "cannot make the folder"), ("", "is a folder")):
        words = [word.format(tmp_path / where) for word in command]
        result = CliRunner().invoke(main, [*words, str(script)])
        assert result.exit_code == 2, result.output
        assert why in result.output
        assert "it ran" not in result.output


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["postmortem", "--tasks", "0"], "x>=1"),
        (["top", "--interval", "-1"], "x>=0"),
        (["serve", "--hang-seconds", "0"], "x>0"),
        (["dump", "abc"], "expected the number of one process, found 'abc'"),
        (["dump", "1", "2"], "expected the number of one process, found '1 2'"),
    ],
)
def test_a_value_that_makes_no_sense_is_a_usage_error(command, says):
    result = CliRunner().invoke(main, command)

    assert result.exit_code == 2, result.output
    assert says in result.output


TRAINING = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(8)]).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 16).npu()).square().mean()
    loss.backward()
    optimizer.step()
    torch.npu._sleep(3_000_000)  # the host comes to item() first, if not each time
    loss.item()
"""
BACKWARD, ITEM = 8, 11


@pytest.fixture
def run(npu_dispatch_run, tmp_path: Path):
    """run(program): what is told at its end, and the same as figures."""

    def run(program: str):
        path = tmp_path / "deep" / "figures.json"
        result = npu_dispatch_run(program, options=("--json", "-o", str(path)))
        assert result.returncode == 0, result.stderr
        return result, json.loads(path.read_text())

    return run


def test_the_summary_ends_with_the_verdict_the_lines_and_what_to_try(run):
    result, figures = run(TRAINING)

    table, _, told = result.stderr.partition("└")
    assert "launches" in table
    lines = told.splitlines()[1:]
    assert lines[0] == figures["verdict"]["text"]
    assert figures["verdict"]["kind"] in ("blocked", "launch-bound", "device-bound")
    assert lines[1].startswith("step ") and lines[1].endswith("(40 steps)")
    assert re.search(
        r"^launches about \d+% of all \([\d,]+ of [\d,]+ sampled\)", told, re.M
    )
    for what, number in (("waits ", ITEM), ("launches ", BACKWARD)):
        told_of = [line for line in lines if line.startswith(what)]
        assert any(f"script.py:{number} in <module>" in line for line in told_of), what
    assert lines[-1] == f"try      {figures['verdict']['action']}"


def test_numbers_of_things_have_their_plural():
    assert counted(1, "wait") == "1 wait"
    assert counted(0, "wait") == "0 waits"
    assert counted(2000, "process") == "2,000 processes"


def test_the_figures_have_the_steps_and_the_lines(run):
    _, figures = run(TRAINING)

    assert figures["steps"] == 40
    assert 0 < figures["step_s"] < figures["seconds"]
    assert 0 < figures["step_device_s"] < figures["seconds"]
    [item] = [w for w in figures["waits"] if w["at"].endswith(f":{ITEM} in <module>")]
    assert item["reason"] == "item" and item["waits"] <= 40
    sampled = sum(line["tasks"] for line in figures["tasks"])
    assert 0 < sampled * 16 <= figures["launches"] + 16


def test_a_whole_step_counts_as_a_step(run):
    _, figures = run("""
import torch, npu_dispatch
model = torch.nn.Linear(4, 1).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = npu_dispatch.compile_step(
    model, optimizer, torch.nn.MSELoss(), backend="eager"
)
x, y = torch.ones(2, 4).npu(), torch.ones(2, 1).npu()
for _ in range(20):
    step(x, y)
assert step.replays > 10, step
""")

    assert figures["steps"] == 20


def test_a_program_that_does_not_use_npu_is_told_so(run):
    result, figures = run("import torch; torch.ones(2) + 1")

    assert figures is None
    assert "has not used npu" in result.stderr


def test_the_summary_goes_to_stderr_and_json_has_the_same_figures(run):
    program = """
import torch
x = torch.zeros(64, device="npu")
for _ in range(1000):
    x += 1
print(x.sum().item())
"""
    result, figures = run(program)

    for row in ("launches/s", "queue depth", "enqueue to retire", "peak memory npu:0"):
        assert row in result.stderr
    printed, _, as_json = result.stdout.partition("\n")
    assert printed == "64000.0" and json.loads(as_json) == figures
    assert 1000 <= figures["launches"] < 1100
    assert figures["latency_us_p50"] > 0
    assert figures["peak_memory"]["0"] >= 512
    assert "item" in figures["blocked_ms"]


def test_steps_are_those_of_one_optimizer_and_have_a_span_inside_of_them():
    readings = iter(range(100))

    def read():
        busy = SimpleNamespace(device=0, stream=0, busy_ns=10**9 * next(readings))
        return SimpleNamespace(streams=[SimpleNamespace(stats=busy)])

    class Optimizer:
        pass

    steps, first, second = Steps(read), Optimizer(), Optimizer()
    for _ in range(40):
        steps.stepped(first, (), {})
        steps.stepped(second, (), {})

    assert steps.count == 40
    # Read after steps 8, 16 and 32.
    assert next(readings) == 3
    assert steps.device_s == 2 / 24
    del first
    steps.stepped(second, (), {})
    assert steps.count == 41
