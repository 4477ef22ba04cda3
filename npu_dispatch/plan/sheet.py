"""Sheets: TOML files that say what a device can do. This imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_dispatch.plan.described import (
    TEXTS,
    Rule,
    SheetError,
    known_keys,
    parsed,
    section,
    texts,
)

__all__ = ["Sheet", "SheetError", "built_in", "load"]

_FOLDER = Path(__file__).parent / "sheets"


_NUMBERS: dict[str, dict[str, Rule]] = {
    "memory": {
        "gib": (False, False, None),
        "gb_per_s": (False, False, None),
        # What touches no more than the cache holds is moved at its rate.
        "cache_mib": (True, False, 0),
        "cache_gb_per_s": (False, False, 1),
    },
    "tflops": {
        "fp64": (False, False, None),
        "fp32": (False, False, None),
        "fp16": (False, False, None),
        "int8": (False, False, None),
    },
    "link": {"gb_per_s": (False, False, None), "copy_engines": (False, True, 2)},
    "latency_us": {
        "launch": (True, False, None),
        "kernel": (True, False, None),
        "complete": (True, False, None),
        "copy": (True, False, 0),
        # Of each time step of an LSTM layer, which follow one another.
        "step": (True, False, 0),
    },
    "queues": {"concurrency": (False, True, 128), "room": (False, True, 1024)},
    # Of what is stated above, the part that programs reach.
    "efficiency": {
        "arithmetic": (False, False, 1),
        "memory": (False, False, 1),
        # Of what other arithmetic reaches.
        "convolution": (False, False, 1),
        "depthwise": (False, False, 1),
        "attention": (False, False, 1),
        "recurrent": (False, False, 1),
        # Of what other kernels reach of the rate of memory.
        "function": (False, False, 1),
        "reduction": (False, False, 1),
        "gather": (False, False, 1),
    },
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """One device. `numbers` is by section and key, in the sheet's units."""

    name: str
    source: str
    date: str
    numbers: dict[str, dict[str, float]]

    def driver_text(self, *, slower: float = 1.0) -> str:
        """Return it as NPU_EMULATED takes it: rates per ns, times in ns.

        With `slower`, every time is so many times longer.
        """
        n = self.numbers
        arithmetic = n["efficiency"]["arithmetic"] * 1e3 / slower
        values: dict[str, object] = {
            "memory": int(n["memory"]["gib"] * 2**30),
            "bandwidth": n["memory"]["gb_per_s"] * n["efficiency"]["memory"] / slower,
            "cache": n["memory"]["cache_mib"] * 2**20,
            "cache_bandwidth": n["memory"]["cache_gb_per_s"] / slower,
            **{
                key: n["efficiency"][key]
                for key in n["efficiency"]
                if key not in ("arithmetic", "memory")
            },
            "link": n["link"]["gb_per_s"] / slower,
            **{key: rate * arithmetic for key, rate in n["tflops"].items()},
            **{f"{key}_ns": us * 1e3 * slower for key, us in n["latency_us"].items()},
            "copy_engines": int(n["link"]["copy_engines"]),
            "concurrency": int(n["queues"]["concurrency"]),
            "queue_room": int(n["queues"]["room"]),
        }
        return ";".join(f"{key}={value}" for key, value in values.items())

    def recording_text(self) -> str:
        """Return a device that says to have this memory, and that never is the limit.

        It has as much memory as a program wants, and its tasks take no time.
        """
        gib = self.numbers["memory"]["gib"]
        fast = "".join(
            f";{key}=1e15" for key in ("bandwidth", "link", *self.numbers["tflops"])
        )
        quick = "".join(f";{key}_ns=0" for key in self.numbers["latency_us"])
        return f"memory={gib * 2**30};overcommit=1{fast}{quick}"


def built_in() -> dict[str, Path]:
    """Return the sheets of this package by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}


def load(name: str) -> Sheet:
    """Return a sheet of this package by its name, or of a file by its path.

    Raises SheetError, which names the key, what was found and what was expected.
    """
    return _read(*parsed(name, built_in(), "sheet"))


def _read(path: Path, data: dict[str, Any]) -> Sheet:
    known_keys(path, data, (*TEXTS, *_NUMBERS))
    said = texts(path, data)
    numbers = {name: section(path, data, name, keys) for name, keys in _NUMBERS.items()}
    if numbers["memory"]["cache_mib"] and "cache_gb_per_s" not in data["memory"]:
        raise SheetError(
            f"{path}: memory.cache_gb_per_s: found nothing, expected a number above 0: "
            "cache_mib says that there is a cache, whose rate this is"
        )
    for key, part in numbers["efficiency"].items():
        if part > 1:
            raise SheetError(
                f"{path}: efficiency.{key}: found {part}, expected at most 1"
            )
    return Sheet(**said, numbers=numbers)
