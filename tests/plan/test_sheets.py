"""The sheets of the package, their list, and where their figures are from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from interpreter import Spawned

from npu_dispatch.plan.sheet import SheetError, built_in, load

SHEETS = {name: load(name) for name in built_in()}

LIST = """
import sys
from npu_dispatch.cli import main
try:
    main(["plan", "--list"])
except SystemExit as stop:
    assert not stop.code, stop.code
assert "torch" not in sys.modules
"""


def test_each_sheet_has_a_source_and_rates_of_hardware() -> None:
    """A figure in another unit than its column's is out of these bounds."""
    wrong = []
    for name, sheet in SHEETS.items():
        numbers = sheet.numbers
        tflops, memory = numbers["tflops"], numbers["memory"]
        stated = tomllib.loads(built_in()[name].read_text())["efficiency"]
        facts = {
            "source": len(sheet.source) > 10,
            "date": re.fullmatch(r"20\d\d(-(0[1-9]|1[0-2]))?", sheet.date),
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
    assert len({sheet.name for sheet in SHEETS.values()}) == len(SHEETS)
    with pytest.raises(SheetError, match=r"a100-80gb-sxm, .*; a TOML file of your own"):
        load("no-such-device")


def test_the_list_names_each_sheet_and_imports_no_torch(
    fresh_python: Spawned,
) -> None:
    done = fresh_python(LIST, COLUMNS="80", PYTHONIOENCODING="utf-8")

    for name, sheet in SHEETS.items():
        rows = re.findall(rf"^│ {re.escape(name)} +│.*$", done.stdout, re.M)
        assert len(rows) == 2, name  # its figures, and their source
        assert f"{sheet.numbers['memory']['gib']:g} GiB" in rows[0]
        assert rows[1].rstrip(" │").endswith(sheet.date)
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("gib = 1", "gib = 1\ncache_mib = 2"), "memory.cache_gb_per_s: found nothing"),
        (("fp32 = 1", 'fp32 = "fast"'), "tflops.fp32: found 'fast', expected a number"),
        (("fp32 = 1", ""), "tflops.fp32: found nothing, expected a number above 0"),
        (("fp32 = 1", "fp32 = 0"), "tflops.fp32: found 0, expected a number above 0"),
        (("fp32 = 1", "fp31 = 1"), "tflops.fp31: no such key; expected fp64, fp32"),
        (("engines = 1", "engines = 1.5"), "link.copy_engines: found 1.5, expected a"),
        (('name = "test"', ""), "name: found None, expected a text"),
        (("[memory]", "[memory"), "not a TOML file"),
    ],
)
def test_a_bad_sheet_is_refused_by_key(sheet, change, said: str) -> None:
    path = Path(sheet())
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(SheetError) as raised:
        load(str(path))
    assert str(raised.value).startswith(f"{path}: {said}")
