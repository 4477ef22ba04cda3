"""The metrics as prometheus-client's objects, and as text by content negotiation.

A line takes about 10 us, so 10,000 lines, of 8 ranks with 64 streams, a tenth of a
second. Answers over HTTP are kept for a second.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as Shown, Sample

from npu_dispatch.observe.serve.families import Exemplar, Family, Row

__all__ = ["Format", "format_for", "negotiate", "to_metrics"]

_KINDS = ("application/openmetrics-text", "text/plain", "text/*", "*/*")
_SUFFIX = {"counter": "_total", "info": "_info"}


class Format(NamedTuple):
    """What an Accept header gets."""

    encode: Callable[[Collector], bytes]
    content_type: str
    open_metrics: bool  # with exemplars

    @property
    def text_kind(self) -> tuple[bool, str]:
        """What the text depends on: one of a few, whatever version is asked for."""
        escaping = self.content_type.partition("escaping=")[2]
        return self.open_metrics, escaping

    def text(self, families: Iterable[Family], names: Sequence[str] = ()) -> bytes:
        return self.encode(_Ready(to_metrics(families, names)))


class _Ready(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def format_for(accept: str) -> Format:
    """Return the format for an Accept header: plain text if it cannot be read."""
    try:
        encode, kind = choose_encoder(_preferred(accept))
    except TypeError:  # the version that it asks for is no number
        encode, kind = choose_encoder("")
    return Format(encode, kind, not kind.startswith("text/plain"))


def weights(header: str) -> Iterator[tuple[str, float, str]]:
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
    for kind, weight, one in weights(accept):
        if kind in _KINDS and weight:
            rated.setdefault(weight, []).append(one)
    return ",".join(rated[max(rated)]) if rated else ""


def negotiate(accept: str, families: Iterable[Family]) -> tuple[bytes, str]:
    """Return the answer to a scrape and its content type."""
    found = format_for(accept)
    return found.text(families), found.content_type


def to_metrics(
    families: Iterable[Family], names: Sequence[str] = ()
) -> Iterator[Metric]:
    """Return the metrics as prometheus-client's own objects.

    `names`: only series with one of these names, by default all.
    """
    for family in families:
        metric = Metric(family.name, family.help, family.kind, family.unit)
        for row in family.rows:
            metric.samples.extend(
                one for one in _samples(family, row) if not names or one.name in names
            )
        if metric.samples:
            yield metric


def _samples(family: Family, row: Row) -> Iterator[Sample]:
    labels = dict(row.labels)
    if row.histogram is None:
        name = family.name + _SUFFIX.get(family.kind, "")
        yield Sample(name, labels, float(row.value))
        return
    # `count` may be older or newer than the buckets, as they are not read at once.
    total = float(sum(row.histogram.buckets))
    counts = row.histogram.below(family.bounds)
    bucket = f"{family.name}_bucket"
    largest = {bisect_left(family.bounds, e.value_ns): e for e in row.exemplars}
    ends = [*(repr(bound / 1e9) for bound in family.bounds), "+Inf"]
    for i, (end, count) in enumerate(zip(ends, [*counts, total], strict=True)):
        example = None
        if e := largest.get(i):
            example = _shown(e)
        yield Sample(bucket, {"le": end, **labels}, float(count), exemplar=example)
    yield Sample(f"{family.name}_count", labels, total)
    yield Sample(f"{family.name}_sum", labels, row.histogram.sum / 1e9)


def _shown(e: Exemplar) -> Shown:
    return Shown({"task": str(e.task)}, e.value_ns / 1e9, round(e.time, 3))
