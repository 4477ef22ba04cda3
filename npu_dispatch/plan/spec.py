"""Specs: TOML files that say what a device can do. This imports no torch."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Rule", "Spec", "SpecError", "built_in", "load", "read_file"]

_TEXTS = ("name", "source", "date")
_EFFICIENCY = ("arithmetic", "memory", "convolution", "recurrent")
_KERNELS = "kernels"
_KERNEL = re.compile(r"\S+ \w+( \d+(x\d+)*)* = \d+(\.\d+)?(e[+-]\d+)?")


class SpecError(ValueError):
    """A file that does not exist, or describes hardware that cannot be."""


class Rule(NamedTuple):
    """What a number may be."""

    default: float | None = None  # None: the key must be there
    zero: bool = False  # whether it may be 0
    whole: bool = False
    most: float = math.inf


# By table and key. Latencies are in no data sheet: these are ours.
_SCHEMA: dict[str, dict[str, Rule]] = {
    "memory": dict.fromkeys(("gib", "gb_per_s"), Rule()),
    "tflops": dict.fromkeys(("fp64", "fp32", "fp16", "int8"), Rule()),
    "link": {"gb_per_s": Rule(), "copy_engines": Rule(2, whole=True)},
    "latency_us": {
        "launch": Rule(4, zero=True),
        "kernel": Rule(2, zero=True),
        "complete": Rule(4, zero=True),
        "copy": Rule(2, zero=True),
    },
    "queues": {"concurrency": Rule(128, whole=True), "room": Rule(1024, whole=True)},
    # The part that programs reach: of what is stated above; of what other arithmetic
    # reaches; of what other kernels reach of the rate of memory.
    "efficiency": dict.fromkeys(_EFFICIENCY, Rule(1, most=1)),
}


@dataclass(frozen=True, slots=True)
class Spec:
    """One device. `numbers` is by table and key, in the file's units.

    `kernels` are measured times, which go before the numbers.
    """

    name: str
    source: str
    date: str
    numbers: dict[str, dict[str, float]]
    kernels: tuple[str, ...] = ()

    @property
    def memory(self) -> int:
        """Bytes that the device has."""
        return int(self.numbers["memory"]["gib"] * 2**30)

    def driver_text(self, *, slower: float = 1.0) -> str:
        """Return it as NPU_EMULATED takes it: rates per ns, times in ns.

        With `slower`, every time is so many times longer.
        """
        n, parts = self.numbers, dict(self.numbers["efficiency"])
        arithmetic = parts.pop("arithmetic") * 1e3 / slower
        values: dict[str, object] = {
            "memory": self.memory,
            "bandwidth": n["memory"]["gb_per_s"] * parts.pop("memory") / slower,
            **parts,
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
        fast = ("bandwidth", "link", *self.numbers["tflops"])
        rates = "".join(f";{key}=1e15" for key in fast)
        times = "".join(f";{key}_ns=0" for key in self.numbers["latency_us"])
        return f"memory={self.memory};overcommit=1{rates}{times}"


def built_in(folder: str = "specs") -> dict[str, Path]:
    """Return the files of this package by name."""
    found = sorted((Path(__file__).parent / folder).glob("*.toml"))
    return {path.stem: path for path in found}


def load(name: str) -> Spec:
    """Return a spec of this package by its name, or of a file by its path.

    Raises SpecError, which names the key, what was found and what was expected.
    """
    _, said = read_file(name, built_in(), "spec", _SCHEMA)
    name, source, date, kernels = (said.pop(key) for key in (*_TEXTS, _KERNELS))
    return Spec(name, source, date, said, kernels)


def read_file(
    name: str,
    files: Mapping[str, Path],
    what: str,
    schema: Mapping[str, Rule | Mapping[str, Rule]],
    optional: Collection[str] = (),
) -> tuple[Path, dict[str, Any]]:
    """Return a file, by its name or by its path, and its texts, numbers and tables.

    Tables that are `optional` may be left out.
    """
    path = files.get(name.lower(), Path(name))
    if not path.is_file():
        raise SpecError(
            f"no {what} {name!r}: neither a file nor one of {', '.join(files)}; "
            "a TOML file of your own can be given: see docs/plan.md"
        )
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SpecError(f"{path}: not a TOML file: {error}") from None
    _only_known(f"{path}: ", data, sorted((*_TEXTS, _KERNELS, *schema)))
    said: dict[str, Any] = {}
    for key in _TEXTS:
        said[key] = data.get(key)
        if not isinstance(said[key], str) or not said[key]:
            raise SpecError(f"{path}: {key}: found {said[key]!r}, expected a text")
    said[_KERNELS] = tuple(data.get(_KERNELS, ()))
    for text in said[_KERNELS]:
        if not isinstance(text, str) or not _KERNEL.fullmatch(text):
            expected = "a text as `calibrate` writes it"
            raise SpecError(f"{path}: {_KERNELS}: found {text!r}, expected {expected}")
    for key, rules in schema.items():
        given = data.get(key)
        if isinstance(rules, Rule):
            said[key] = _number(f"{path}: {key}", given, rules)
        elif key in data or key not in optional:
            said[key] = _table(f"{path}: {key}", {} if given is None else given, rules)
    return path, said


def _only_known(where: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise SpecError(
            f"{where}{unknown[0]}: no such key; expected {', '.join(known)}"
        )


def _table(where: str, given: Any, rules: Mapping[str, Rule]) -> dict[str, float]:
    if not isinstance(given, dict):
        raise SpecError(f"{where}: found {given!r}, expected a table")
    _only_known(f"{where}.", given, rules)
    return {
        key: _number(f"{where}.{key}", given.get(key), rule)
        for key, rule in rules.items()
    }


def _number(where: str, value: object, rule: Rule) -> float:
    if value is None and rule.default is not None:
        return rule.default
    expected = "a whole number" if rule.whole else "a number"
    expected += " of at least 0" if rule.zero else " above 0"
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value < math.inf
        or (value == 0 and not rule.zero)
        or (rule.whole and value != int(value))
    ):
        found = "nothing" if value is None else repr(value)
        raise SpecError(f"{where}: found {found}, expected {expected}")
    if value > rule.most:
        raise SpecError(f"{where}: found {value}, expected at most {rule.most:g}")
    return value
