"""Metrics as text, by content negotiation.

A line takes about 10 us, so 10,000 lines, of 8 ranks with 64 streams, a tenth of a
second. Answers over HTTP are kept for a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

_KINDS = ("application/openmetrics-text", "text/plain", "text/*", "*/*")


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

    def text(self, metrics: Iterable[Metric], names: Sequence[str] = ()) -> bytes:
        """Return the metrics as text; `names`: only series of these names."""
        return self.encode(_Chosen(metrics, names))


class _Chosen(Collector):
    def __init__(self, metrics: Iterable[Metric], names: Sequence[str]) -> None:
        self._metrics, self._names = metrics, names

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics:
            if self._names:
                metric.samples = [s for s in metric.samples if s.name in self._names]
            if metric.samples:
                yield metric


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
