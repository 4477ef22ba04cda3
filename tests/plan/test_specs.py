"""The specs of the package, and `npu-dispatch calibrate`, which writes one."""

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from click.testing import CliRunner
from interpreter import Spawned

from npu_dispatch.cli import main
from npu_dispatch.plan import calibrate, probes
from npu_dispatch.plan.kernel_times import Kernel, KernelTimes
from npu_dispatch.plan.spec import SpecError, built_in, load

SPECS = {name: load(name) for name in built_in()}

LIST = """
import sys
from npu_dispatch.cli import main
try:
    main(["plan", "--list"])
except SystemExit as stop:
    assert not stop.code, stop.code
assert "torch" not in sys.modules
"""


def test_each_spec_has_a_source_and_rates_of_hardware() -> None:
    """A figure in another unit than its column's is out of these bounds."""
    wrong = []
    for name, spec in SPECS.items():
        numbers = spec.numbers
        tflops, memory = numbers["tflops"], numbers["memory"]
        stated = tomllib.loads(built_in()[name].read_text())["efficiency"]
        facts = {
            "source": len(spec.source) > 10,
            "date": re.fullmatch(r"20\d\d(-(0[1-9]|1[0-2]))?", spec.date),
            "efficiency": set(stated)
            == {"arithmetic", "memory", "convolution", "recurrent"},
            "parts": stated["recurrent"] < stated["convolution"] < 1,
            "fp16": tflops["fp16"] > tflops["fp32"] >= tflops["fp64"],
            "int8": tflops["fp16"] <= tflops["int8"] <= 4.1 * tflops["fp16"],
            "tflops": 0.1 < tflops["fp64"] < 200
            and 5 < tflops["fp32"] < 300
            and 20 < tflops["fp16"] < 3000,
            "gib": 10 < memory["gib"] < 300,
            "gb_per_s": 250 < memory["gb_per_s"] <= 8000,
            # What a device computes while it reads a byte.
            "balance": 50 < tflops["fp16"] * 1e3 / memory["gb_per_s"] < 600,
            "link": 15 < numbers["link"]["gb_per_s"] < 100,
        }
        wrong += [f"{name}: {what}" for what, holds in facts.items() if not holds]
    assert wrong == []
    assert len({spec.name for spec in SPECS.values()}) == len(SPECS)
    with pytest.raises(SpecError, match=r"a100-80gb-sxm, .*; a TOML file of your own"):
        load("no-such-device")


def test_the_list_names_each_spec_and_imports_no_torch(
    fresh_python: Spawned,
) -> None:
    done = fresh_python(LIST, COLUMNS="80", PYTHONIOENCODING="utf-8")

    for name, spec in SPECS.items():
        rows = re.findall(rf"^│ {re.escape(name)} +│.*$", done.stdout, re.M)
        assert len(rows) == 2, name  # its figures, and their source
        assert f"{spec.numbers['memory']['gib']:g} GiB" in rows[0]
        assert rows[1].rstrip(" │").endswith(spec.date)
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("fp32 = 1", 'fp32 = "fast"'), "tflops.fp32: found 'fast', expected a number"),
        (("fp32 = 1", ""), "tflops.fp32: found nothing, expected a number above 0"),
        (("fp32 = 1", "fp32 = 0"), "tflops.fp32: found 0, expected a number above 0"),
        (("fp32 = 1", "fp31 = 1"), "tflops.fp31: no such key; expected fp64, fp32"),
        (("engines = 1", "engines = 1.5"), "link.copy_engines: found 1.5, expected a"),
        (('name = "test"', ""), "name: found None, expected a text"),
        (("[memory]", "kernels = ['mm = 2']\n[memory]"), "kernels: found 'mm = 2', ex"),
        (("[memory]", "[memory"), "not a TOML file"),
    ],
)
def test_a_bad_spec_is_refused_by_key(spec, change, said: str) -> None:
    path = Path(spec())
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(SpecError) as raised:
        load(str(path))
    assert str(raised.value).startswith(f"{path}: {said}")


@pytest.mark.nightly
def test_filters_of_one_channel_are_the_furthest_from_the_peak() -> None:
    times = KernelTimes(calibrate.kernels())

    def rate(outer: int, inner: int) -> float:
        image = [8, 256, 16, 16]
        shapes = [image, [outer, inner, 3, 3], [8, outer, 16, 16]]
        told = times.ns("aten::convolution", shapes, "float32")
        assert told
        return inner / told.ns

    assert 0 < rate(256, 1) < rate(256, 256)


def test_its_spec_is_one_that_plan_takes(planned, monkeypatch, tmp_path: Path) -> None:
    """Each figure is measured, but once: how large they are is the machine's. The
    device "host" is measured where it was not before."""
    monkeypatch.setattr(probes, "_LEAST_S", 0.0)
    monkeypatch.setattr(probes, "_REPEATS", 2)
    monkeypatch.setattr(probes, "_TRIPS", 10)
    for calls, grid in probes.GRIDS.items():
        monkeypatch.setitem(probes.GRIDS, calls, grid[:2])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "new" / "cpu.toml"

    def calibrated(command: list[str], **_: Any) -> Any:
        done = CliRunner().invoke(main, [command[-2], str(path), "--name", "here"])
        assert done.exit_code == 0, done.output
        Path(command[-1]).write_bytes(path.read_bytes())
        return SimpleNamespace(returncode=0)

    fake = SimpleNamespace(run=calibrated, DEVNULL=None)
    monkeypatch.setattr("npu_dispatch.cli.plan.subprocess", fake)
    (tmp_path / "npu_dispatch").mkdir()
    done = planned(PROGRAM, (), "--device", "host")

    spec = load(str(path))
    assert done.report["device"] == spec.name == "here"
    # A product of a size that is in the grid, one between two, and a kernel of none.
    origins = {
        row["name"]: (row["measured"], row["interpolated"])
        for row in done.report["operators"]
    }
    assert origins["aten::mm"] == (1, 0)
    assert origins["aten::relu"] == (0, 1)
    assert origins["aten::erfinv"] == (0, 0)
    assert "interpolated" in done.out and "modelled" in done.out
    timed = [Kernel.of_text(text) for text in spec.kernels]
    assert [kernel.text() for kernel in timed] == list(spec.kernels)
    assert {"aten::addmm", "aten::convolution_backward", "aten::_fused_adamw_"} < {
        kernel.operator for kernel in timed
    }
    assert all(kernel.ns > 0 for kernel in timed)
    for table in ("memory", "tflops", "link"):
        assert all(value > 0 for value in spec.numbers[table].values()), table
    assert all(value >= 0 for value in spec.numbers["latency_us"].values())
    memory = torch.npu.get_device_properties(0).total_memory / 2**30
    assert spec.numbers["memory"]["gib"] == pytest.approx(memory, rel=0.1)
    assert not re.search(r"= nan|= inf", path.read_text())


# Each step is a call of the model.
PROGRAM = """
import torch
a, b = torch.ones(1, 64, device="npu"), torch.ones(64, 8, device="npu")
class Model(torch.nn.Module):
    def forward(self, x):
        return (x @ b, torch.ones(512, device="npu").relu(), x.erfinv())
model = Model()
while True:
    model(a)
"""


@pytest.mark.parametrize(("whole", "own", "said"), [(60, 40, "40%"), (22, 40, "")])
def test_calibrate_says_what_others_take(
    monkeypatch, tmp_path: Path, whole: float, own: float, said: str
) -> None:
    """Of two CPUs, all of which took `whole` per cent of their time."""
    process = SimpleNamespace(cpu_percent=lambda: own)
    fake = {"cpu_percent": lambda: whole, "cpu_count": lambda: 2}
    for name, value in {**fake, "Process": lambda: process}.items():
        monkeypatch.setattr(psutil, name, value)
    monkeypatch.setattr(calibrate, "measure", dict)
    monkeypatch.setattr(calibrate, "GRIDS", {})

    done = CliRunner().invoke(main, ["calibrate", str(tmp_path / "cpu.toml")])

    assert done.exit_code == 0, done.output
    assert ("Other processes used" in done.stderr) == bool(said)
    assert said in done.stderr
