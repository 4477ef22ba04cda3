"""A program that is planned, and specs, for the tests of `npu-dispatch plan`."""

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import pytest
from click.testing import CliRunner
from interpreter import Forked, shared_zygote

from npu_dispatch.cli import main

SPEC = """
name = "test"
source = "this test"
date = "2026"
[memory]
gib = {gib}
gb_per_s = {memory}
[tflops]
fp64 = 1
fp32 = {fp32}
fp16 = 40
int8 = 80
[link]
gb_per_s = {link}
copy_engines = 1
[latency_us]
launch = {launch}
kernel = {kernel}
complete = {launch}
copy = {copy}
"""
USUAL = {"gib": 1, "memory": 1, "fp32": 1, "link": 10}
USUAL |= {"launch": 5, "kernel": 1, "copy": 0}


def spec_text(**values: float) -> str:
    return SPEC.format(**USUAL | values)


@pytest.fixture(scope="session")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """spec(memory=100): the file of a spec that has these numbers."""

    def write(more: str = "", **values: float) -> str:
        path = tmp_path_factory.mktemp("spec") / "spec.toml"
        path.write_text(spec_text(**values) + more)
        return str(path)

    return write


class Planned(NamedTuple):
    status: int
    out: str
    err: str
    reports: list[dict[str, Any]] | None
    folder: Path  # in which the program and the command ran

    @property
    def report(self) -> dict[str, Any]:
        """The only one."""
        assert self.reports, self.err
        (one,) = self.reports
        return one


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory, spec) -> Callable[..., Planned]:
    """planned(program, rate, *options): for devices of so many GB/s and TFLOP/s.

    What was planned in the same way before is not run again: tests share a recording.
    The program's process is forked, which spares it the import of torch;
    test_what_a_program_did_before_an_interrupt_is_planned starts the command itself.
    """

    @functools.cache
    def run(program: str, rate: float | tuple[float, ...], *options: str) -> Planned:
        folder = tmp_path_factory.mktemp("planned")
        script, out = folder / "script.py", folder / "plan.json"
        script.write_text(program)
        command = ["plan", "-o", str(out), "--steps", "10", *options]
        for each in rate if isinstance(rate, tuple) else (rate,):
            command += ["--device", spec(memory=each, fp32=each)]

        def forked(
            argv: list[str], env: dict[str, str], stdout: Any, check: bool
        ) -> CompletedProcess[str]:
            python = Forked(folder, shared_zygote())
            done = python.run(*argv[argv.index("-m") :], env=env)
            print(done.stdout, done.stderr, file=sys.stderr)
            return done

        # The command sets variables for its children, in this process.
        with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ):
            patch.chdir(folder)
            fake = SimpleNamespace(run=forked)
            patch.setattr("npu_dispatch.plan.record.subprocess", fake)
            runner = CliRunner(env={"COLUMNS": "200"})
            done = runner.invoke(main, [*command, str(script)])
        reports = json.loads(out.read_text())["reports"] if out.is_file() else None
        return Planned(done.exit_code, done.stdout, done.stderr, reports, folder)

    return run
