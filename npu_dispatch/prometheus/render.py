"""The metrics as text, by content negotiation, and as prometheus-client's objects.

The text is not left to prometheus-client, which takes 13 us a line, as a host with
64 streams has 6,000 lines. Tests compare the two texts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import (
    BucketSpan,
    Exemplar as Shown,
    NativeHistogram,
    Sample,
)

from npu_dispatch.prometheus.families import Exemplar, Family, Labels, Row

__all__ = ["content_type", "negotiate", "shows_exemplars", "to_metrics"]

_SUFFIX = {"counter": "_total", "info": "_info"}
_TEXT = "text/plain"
_NATIVE_SCHEMA = 2  # bucket i ends at 2 ** (i / 4) seconds
_ZERO_INDEX = -120  # 2 ** -30 s, a nanosecond; less counts as zero
_LAST_INDEX = 41
_NATIVE_BOUNDS = tuple(1e9 * 2 ** (i / 4) for i in range(_ZERO_INDEX, _LAST_INDEX + 1))


def content_type(accept: str) -> str:
    """Return the format that this Accept header gets, one of a few."""
    return choose_encoder(accept)[1]


def shows_exemplars(accept: str) -> bool:
    """Return whether the answer to this Accept header can have exemplars."""
    return not content_type(accept).startswith(_TEXT)


def negotiate(accept: str, families: Iterable[Family]) -> tuple[bytes, str]:
    """Return the answer to a scrape and its content type.

    Histograms are classic ones, or native ones where OpenMetrics 2.0 is accepted.
    """
    kind = content_type(accept)
    if kind.startswith(_TEXT):
        return _text(families, open_metrics=False), kind
    native = "version=1." not in kind
    return _text(families, open_metrics=True, native=native), kind


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _text_of(labels: Labels) -> str:
    if not labels.text:
        pairs = [f'{name}="{_escape(labels[name])}"' for name in sorted(labels)]
        labels.text = ",".join(pairs)
    return labels.text


def _number(value: float) -> str:
    return repr(float(value))


def _text(
    families: Iterable[Family], *, open_metrics: bool, native: bool = False
) -> bytes:
    lines: list[str] = []
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
        if kind == "histogram" and native:
            for row in family.rows:
                text = _text_of(row.labels)
                name = f"{sample}{{{text}}}" if text else sample
                lines.append(f"{name} {_native_text(_native(row))}")
            continue
        if kind == "histogram":
            heads = [f'{sample}_bucket{{le="{_number(b / 1e9)}"' for b in family.bounds]
            for row in family.rows:
                first = len(lines)
                _add_histogram(
                    lines, sample, row, family.bounds, heads, _text_of(row.labels)
                )
                if open_metrics and row.exemplars:
                    _add_exemplars(lines, first, row.exemplars, family.bounds)
            continue
        for labels, value, _, _ in family.rows:
            text = labels.text or _text_of(labels)
            lines.append(
                f"{sample}{{{text}}} {float(value)!r}"
                if text
                else f"{sample} {float(value)!r}"
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
    # `count` may be older or newer than the buckets, as they are not read at once.
    total = sum(histogram.buckets)
    rest = f",{text}}}" if text else "}"
    # `heads` begin with the name: f"{name}_bucket{{le=..."
    lines += [
        f"{head}{rest} {count}.0"
        for head, count in zip(heads, histogram.below(bounds), strict=True)
    ]
    lines.append(f'{name}_bucket{{le="+Inf"{rest} {total}.0')
    braces = f"{{{text}}}" if text else ""
    lines.append(f"{name}_count{braces} {total}.0")
    lines.append(f"{name}_sum{braces} {_number(histogram.sum / 1e9)}")


def _native_text(h: NativeHistogram) -> str:
    text = (
        f"{{count:{h.count_value},sum:{h.sum_value},schema:{h.schema},"
        f"zero_threshold:{h.zero_threshold},zero_count:{h.zero_count}"
    )
    if h.pos_spans:
        spans = ",".join([f"{offset}:{length}" for offset, length in h.pos_spans])
        deltas = ",".join(map(str, h.pos_deltas or ()))
        text += f",positive_spans:[{spans}],positive_deltas:[{deltas}]"
    shown = [
        f' # {{task="{e.labels["task"]}"}} {_number(e.value)} {e.timestamp}'
        for e in h.nh_exemplars or ()
    ]
    return f"{text}}}{''.join(shown)}"


def _add_exemplars(
    lines: list[str],
    first: int,
    exemplars: Sequence[Exemplar],
    bounds: Sequence[float],
) -> None:
    """Put each bucket's largest task behind its line; `first` is the lowest line."""
    for bucket, e in {bisect_left(bounds, e.value_ns): e for e in exemplars}.items():
        task, ns, moment = e
        lines[first + bucket] += f' # {{task="{task}"}} {ns / 1e9!r} {moment:.3f}'


def to_metrics(families: Iterable[Family], *, native: bool = False) -> Iterator[Metric]:
    """Return the metrics as prometheus-client's own objects."""
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
    """Return the filled buckets of a native histogram with the same counts."""
    histogram = row.histogram
    assert histogram is not None
    filled = histogram.between(_NATIVE_BOUNDS)
    zero = filled.pop(0, 0)
    spans: list[BucketSpan] = []
    deltas: list[int] = []
    end = previous = 0
    for i, count in filled.items():
        index = _ZERO_INDEX + i
        if spans and index == end:
            spans[-1] = BucketSpan(spans[-1].offset, spans[-1].length + 1)
        else:
            spans.append(BucketSpan(index - end, 1))
        deltas.append(count - previous)
        end, previous = index + 1, count
    return NativeHistogram(
        count_value=sum(histogram.buckets),
        sum_value=histogram.sum / 1e9,
        schema=_NATIVE_SCHEMA,
        zero_threshold=2.0**-30,
        zero_count=zero,
        pos_spans=spans or None,
        pos_deltas=deltas or None,
        nh_exemplars=[_shown(e) for e in row.exemplars] or None,
    )
