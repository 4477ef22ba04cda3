"""The metrics as text: classic formats here, the rest by prometheus-client.

prometheus-client takes 13 us a line; a host with 64 streams has 6,000 lines.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import (
    BucketSpan,
    Exemplar as Shown,
    NativeHistogram,
    Sample,
)

from npu_dispatch.metrics.families import Exemplar, Family, Labels, Row

__all__ = ["negotiate", "shows_exemplars", "to_metrics"]

_SUFFIX = {"counter": "_total", "info": "_info"}
_TEXT = "text/plain"
_NATIVE_SCHEMA = 2  # bucket i ends at 2 ** (i / 4) seconds
_ZERO_INDEX = -120  # 2 ** -30 s, a nanosecond: below is zero
_LAST_INDEX = 41
_NATIVE_BOUNDS = tuple(1e9 * 2 ** (i / 4) for i in range(_ZERO_INDEX, _LAST_INDEX + 1))


def shows_exemplars(accept: str) -> bool:
    """Return whether the answer to this Accept header can have exemplars."""
    return not choose_encoder(accept)[1].startswith(_TEXT)


def negotiate(accept: str, families: Iterable[Family]) -> tuple[bytes, str]:
    """Return the answer to a scrape and its content type.

    Classic histograms, or native ones for who accepts OpenMetrics 2.0.
    """
    encoder, content_type = choose_encoder(accept)
    if content_type.startswith(_TEXT):
        return _classic(families, open_metrics=False), content_type
    if "version=1." in content_type:
        return _classic(families, open_metrics=True), content_type
    native = list(to_metrics(families, native=True))

    class Ready(Collector):
        def collect(self) -> Iterable[Metric]:
            return native

    return encoder(Ready()), content_type


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


# Labels repeat at every scrape; making their text is half of its cost.
@lru_cache(maxsize=1 << 14)
def _joined(labels: tuple[tuple[str, str], ...]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in sorted(labels))


def _label_text(labels: Labels) -> str:
    return _joined(tuple(labels.items()))


def _number(value: float) -> str:
    return repr(float(value))


def _classic(families: Iterable[Family], *, open_metrics: bool) -> bytes:
    lines: list[str] = []
    # Rows of one stream mostly have the very same labels.
    texts: dict[int, str] = {}

    def text_of(labels: Labels) -> str:
        text = texts.get(id(labels))
        if text is None:
            text = texts[id(labels)] = _label_text(labels)
        return text

    for family in families:
        sample = family.name + _SUFFIX.get(family.kind, "")
        title = family.name if open_metrics else sample
        kind = family.kind
        if not open_metrics and kind == "info":
            kind = "gauge"
        lines.append(f"# HELP {title} {family.help}")
        lines.append(f"# TYPE {title} {kind}")
        if open_metrics and family.unit:
            lines.append(f"# UNIT {title} {family.unit}")
        if kind == "histogram":
            heads = [f'le="{_number(b / 1e9)}"' for b in family.bounds]
            for row in family.rows:
                first = len(lines)
                _add_histogram(
                    lines, sample, row, family.bounds, heads, text_of(row.labels)
                )
                if open_metrics and row.exemplars:
                    _add_exemplars(lines, first, row.exemplars, family.bounds)
            continue
        for row in family.rows:
            text = text_of(row.labels)
            lines.append(
                f"{sample}{{{text}}} {_number(row.value)}"
                if text
                else f"{sample} {_number(row.value)}"
            )
    if open_metrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def _add_histogram(
    lines: list[str],
    name: str,
    row: Row,
    bounds: Sequence[float],
    heads: Sequence[str],
    text: str,
) -> None:
    histogram = row.histogram
    assert histogram is not None
    # `count` may be older or newer than the buckets: they are not read at once.
    total = sum(histogram.buckets)
    rest = f",{text}}}" if text else "}"
    lines += [
        f"{name}_bucket{{{head}{rest} {count}.0"
        for head, count in zip(heads, histogram.below(bounds), strict=True)
    ]
    lines.append(f'{name}_bucket{{le="+Inf"{rest} {total}.0')
    braces = f"{{{text}}}" if text else ""
    lines.append(f"{name}_count{braces} {total}.0")
    lines.append(f"{name}_sum{braces} {_number(histogram.sum / 1e9)}")


def _add_exemplars(
    lines: list[str],
    first: int,
    exemplars: Sequence[Exemplar],
    bounds: Sequence[float],
) -> None:
    """Put each bucket's largest task behind its line; `first` is the lowest one's."""
    for bucket, e in {bisect_left(bounds, e.value_ns): e for e in exemplars}.items():
        task, ns, moment = e
        lines[first + bucket] += f' # {{task="{task}"}} {ns / 1e9!r} {moment:.3f}'


def to_metrics(families: Iterable[Family], *, native: bool = False) -> Iterator[Metric]:
    """Return them as prometheus-client's own objects."""
    for family in families:
        metric = Metric(family.name, family.help, family.kind, family.unit)
        for row in family.rows:
            metric.samples.extend(_samples(family, row, native))
        yield metric


def _samples(family: Family, row: Row, native: bool) -> Iterator[Sample]:
    labels = dict(row.labels)
    if row.histogram is None:
        name = family.name + _SUFFIX.get(family.kind, "")
        yield Sample(name, labels, float(row.value))
        return
    if native:
        value = _native(row)
        yield Sample(family.name, labels, math.nan, native_histogram=value)
        return
    total = float(sum(row.histogram.buckets))
    counts = row.histogram.below(family.bounds)
    bucket = f"{family.name}_bucket"
    largest = {bisect_left(family.bounds, e.value_ns): e for e in row.exemplars}
    ends = [*(_number(bound / 1e9) for bound in family.bounds), "+Inf"]
    for i, (end, count) in enumerate(zip(ends, [*counts, total], strict=True)):
        example = None
        if e := largest.get(i):
            example = _shown(e)
        yield Sample(bucket, {"le": end, **labels}, float(count), exemplar=example)
    yield Sample(f"{family.name}_count", labels, total)
    yield Sample(f"{family.name}_sum", labels, row.histogram.sum / 1e9)


def _shown(e: Exemplar) -> Shown:
    return Shown({"task": str(e.task)}, e.value_ns / 1e9, round(e.time, 3))


def _native(row: Row) -> NativeHistogram:
    """Return it in the buckets of a native histogram, the empty ones left out."""
    histogram = row.histogram
    assert histogram is not None
    below = histogram.below(_NATIVE_BOUNDS)
    total = sum(histogram.buckets)
    below[-1] = total  # what is longer still counts as the longest
    filled = [
        (_ZERO_INDEX + i, below[i] - below[i - 1])
        for i in range(1, len(below))
        if below[i] > below[i - 1]
    ]
    spans: list[BucketSpan] = []
    deltas: list[int] = []
    end = previous = 0
    for index, count in filled:
        if spans and index == end:
            spans[-1] = BucketSpan(spans[-1].offset, spans[-1].length + 1)
        else:
            spans.append(BucketSpan(index - end, 1))
        deltas.append(count - previous)
        end, previous = index + 1, count
    return NativeHistogram(
        count_value=total,
        sum_value=histogram.sum / 1e9,
        schema=_NATIVE_SCHEMA,
        zero_threshold=2.0**-30,
        zero_count=below[0],
        pos_spans=spans or None,
        pos_deltas=deltas or None,
        nh_exemplars=[_shown(e) for e in row.exemplars] or None,
    )
