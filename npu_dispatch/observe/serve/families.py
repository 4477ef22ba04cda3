"""Metrics as prometheus-client's objects, made of counters and our histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.samples import Exemplar, Sample

from npu_dispatch.observe.segment import Histogram

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
