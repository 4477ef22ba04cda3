"""What a metric is: a name, a kind and rows of labels and values, in no text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from npu_dispatch.observe.segment import Histogram

__all__ = [
    "LATENCY_BOUNDS",
    "LAUNCH_BOUNDS",
    "Exemplar",
    "Families",
    "Family",
    "Labels",
    "Row",
]

_US, _MS, _S = 1e3, 1e6, 1e9
# Upper bounds of classic histograms, in nanoseconds.
LAUNCH_BOUNDS = (*(16.0 * 2**i for i in range(16)), _MS)
LATENCY_BOUNDS = (
    *(n * _US for n in (1, 2.5, 5, 10, 25, 50, 100, 250, 500)),
    *(n * _MS for n in (1, 2.5, 5, 10, 50, 100)),
    *(n * _S for n in (1, 10)),
)


class Labels(dict[str, str]):
    """Labels, which never change."""

    __slots__ = ("_more",)

    def __init__(self, *pairs: Mapping[str, str], **labels: str) -> None:
        super().__init__(*pairs, **labels)
        self._more: dict[tuple[str, str], Labels] = {}

    def also(self, name: str, value: str) -> Labels:
        """Return these and one more; its values must be few, as the result is kept."""
        key = name, value
        found = self._more.get(key)
        if found is None:
            found = self._more[key] = Labels(self, **{name: value})
        return found


class Exemplar(NamedTuple):
    """One task of a histogram. `time` in seconds since 1970."""

    task: str  # STREAM/NUMBER
    value_ns: float
    time: float


# Not a dataclass: there are thousands, and making one of these takes a third as long.
class Row(NamedTuple):
    labels: Labels
    value: float = 0.0
    histogram: Histogram | None = None  # of nanoseconds
    exemplars: Sequence[Exemplar] = ()  # tasks of it, rising


@dataclass(slots=True)
class Family:
    """One metric. `name` is without the suffix (_total, _info) of its kind."""

    name: str
    kind: str  # counter, gauge, histogram, info
    help: str
    bounds: Sequence[float] = ()
    rows: list[Row] = field(default_factory=list)

    def add(self, labels: Labels, value: float) -> None:
        self.rows.append(Row(labels, value))

    @property
    def unit(self) -> str:
        last = self.name.rpartition("_")[2]
        return last if last in ("seconds", "bytes") else ""


class Families:
    """Families in the order of their first use. Zeros are left out unless asked for."""

    def __init__(self) -> None:
        self._by_name: dict[str, Family] = {}

    def _add(self, name: str, kind: str, text: str, row: Row) -> Family:
        family = self._by_name.get(name)
        if family is None:
            family = Family(f"npu_dispatch_{name}", kind, text)
            self._by_name[name] = family
        family.rows.append(row)
        return family

    def counter(
        self,
        name: str,
        text: str,
        labels: Labels,
        value: float,
        *,
        zero: bool = False,
    ) -> None:
        if value or zero:
            self._add(name, "counter", text, Row(labels, value))

    def gauge(self, name: str, text: str, labels: Labels, value: float | None) -> None:
        if value is not None:
            self._add(name, "gauge", text, Row(labels, value))

    def info(self, name: str, text: str, labels: Labels) -> None:
        self._add(name, "info", text, Row(labels, 1.0))

    def histogram(
        self,
        name: str,
        text: str,
        labels: Labels,
        value: Histogram,
        bounds: Sequence[float] = LATENCY_BOUNDS,
        exemplars: Sequence[Exemplar] = (),
    ) -> None:
        row = Row(labels, histogram=value, exemplars=exemplars)
        family = self._add(name, "histogram", text, row)
        family.bounds = bounds

    def all(self) -> Iterable[Family]:
        return self._by_name.values()
