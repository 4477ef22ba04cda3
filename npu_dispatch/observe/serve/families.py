"""Metrics as prometheus-client's objects, and these as text, by content negotiation.

A line of text takes about 10 us, so 10,000 lines, of 8 ranks with 64 streams, a tenth
of a second. Answers over HTTP are kept for a second.
"""

from __future__ import annotations

import copy
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Exemplar, Sample

from npu_dispatch.observe.segment.values import Histogram

_US, _MS, _S = 1e3, 1e6, 1e9
# Upper bounds of classic histograms, in nanoseconds.
LAUNCH_BOUNDS = (*(16.0 * 2**i for i in range(16)), _MS)
LATENCY_BOUNDS = (
    *(n * _US for n in (1, 2.5, 5, 10, 25, 50, 100, 250, 500)),
    *(n * _MS for n in (1, 2.5, 5, 10, 50, 100)),
    *(n * _S for n in (1, 10)),
)
_KINDS = ("application/openmetrics-text", "text/plain", "text/*", "*/*")


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


class Families:
    """Metrics in the order of their first use. Zeros are left out unless asked for."""

    def __init__(self) -> None:
        self._by_name: dict[str, Metric] = {}

    def _metric(self, name: str, kind: str, text: str) -> Metric:
        metric = self._by_name.get(name)
        if metric is None:
            last = name.rpartition("_")[2]
            unit = last if last in ("seconds", "bytes") else ""
            metric = Metric(f"npu_dispatch_{name}", text, kind, unit)
            self._by_name[name] = metric
        return metric

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
            metric = self._metric(name, "counter", text)
            metric.add_sample(f"{metric.name}_total", labels, float(value))

    def gauge(self, name: str, text: str, labels: Labels, value: float | None) -> None:
        if value is not None:
            metric = self._metric(name, "gauge", text)
            metric.add_sample(metric.name, labels, float(value))

    def info(self, name: str, text: str, labels: Labels) -> None:
        metric = self._metric(name, "info", text)
        metric.add_sample(f"{metric.name}_info", labels, 1.0)

    def histogram(
        self,
        name: str,
        text: str,
        labels: Labels,
        value: Histogram,
        bounds: Sequence[float] = LATENCY_BOUNDS,
        exemplars: Sequence[Exemplar] = (),
    ) -> None:
        """Add a histogram of nanoseconds; `exemplars` are tasks of it, rising."""
        metric = self._metric(name, "histogram", text)
        # `count` may be older or newer than the buckets, as they are not read at once.
        total = float(sum(value.buckets))
        counts = [*value.below(bounds), total]
        ends = [bound / _S for bound in bounds]
        largest = {bisect_left(ends, e.value): e for e in exemplars}
        bucket = f"{metric.name}_bucket"
        for i, end in enumerate([*map(repr, ends), "+Inf"]):
            of = {"le": end, **labels}
            metric.samples.append(
                Sample(bucket, of, float(counts[i]), exemplar=largest.get(i))
            )
        metric.add_sample(f"{metric.name}_count", labels, total)
        metric.add_sample(f"{metric.name}_sum", labels, value.sum / _S)

    def all(self) -> Iterable[Metric]:
        return self._by_name.values()


class Format(NamedTuple):
    """What an Accept header gets."""

    encode: Callable[[Any], bytes]  # of what collects
    content_type: str
    open_metrics: bool  # with exemplars

    @property
    def escaping(self) -> str:
        """How names are escaped: one of a few ways, whatever version is asked for."""
        return self.content_type.partition("escaping=")[2]

    def text(self, metrics: Sequence[Metric], names: Sequence[str] = ()) -> bytes:
        """Return the metrics as text; `names`: only series of these names."""
        shown = []
        for metric in metrics:
            if names:  # others show the same metric
                metric = copy.copy(metric)
                metric.samples = [s for s in metric.samples if s.name in names]
            if metric.samples:
                shown.append(metric)
        return self.encode(SimpleNamespace(collect=lambda: shown))


def format_for(accept: str) -> Format:
    """Return the format for an Accept header: plain text if it cannot be read."""
    try:
        encode, kind = choose_encoder(_preferred(accept))
    except TypeError:  # the version that it asks for is no number
        encode, kind = choose_encoder("")
    return Format(encode, kind, not kind.startswith("text/plain"))


def _weights(header: str) -> Iterator[tuple[str, float, str]]:
    """Yield each kind that a header accepts, its weight `q`, and its whole text."""
    for one in header.split(","):
        kind, *words = (word.strip() for word in one.split(";"))
        found = [w[2:] for w in words if re.fullmatch(r"q=[01](\.\d*)?", w)]
        yield kind, float(found[0]) if found else 1.0, one


def _preferred(accept: str) -> str:
    """Return those of the formats that we have that the client likes best.

    prometheus-client's choice takes the first that it knows and ignores `q`.
    """
    # Histograms of OpenMetrics 2.0 would be others.
    accept = re.sub(r"version=2[.\d]*", "version=1.0.0", accept)
    rated: dict[float, list[str]] = {}
    for kind, weight, one in _weights(accept):
        if kind in _KINDS and weight:
            rated.setdefault(weight, []).append(one)
    return ",".join(rated[max(rated)]) if rated else ""


def refuses_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding header says `gzip;q=0`: never."""
    return any(kind == "gzip" and not q for kind, q, _ in _weights(header))
