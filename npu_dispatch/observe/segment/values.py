"""The values that a reading of a segment gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache, lru_cache, reduce
from itertools import accumulate
from operator import add, sub
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from npu_dispatch.words import script_name

T = TypeVar("T")


def filled(kind: type[T], words: Mapping[str, Any], **more: Any) -> T:
    """Return a NamedTuple of `more` and, for its other fields, of a struct's words."""
    known = {**words, **more}
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    return kind(**{name: known[name] for name in fields})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the kinds of a NamedTuple's or dataclass's fields; none of others."""
    has_fields = hasattr(kind, "_fields") or is_dataclass(kind)
    return get_type_hints(kind) if has_fields else {}


def fitted(kind: Any, value: Any, what: str) -> Any:
    """Return `value`, which another program has written, as a value of type `kind`.

    A dict by name, or a list in order, becomes a NamedTuple or a dataclass. Raises
    ValueError if it does not fit.
    """
    hints, args = _hints(kind), get_args(kind)
    made: Any = get_origin(kind)
    if hints and isinstance(value, list):
        value = dict(zip(hints, value, strict=True))
    if hints and isinstance(value, dict):
        known = getattr(kind, "_field_defaults", {}).keys() | value.keys()
        for name in hints.keys() - known:
            raise ValueError(f"{what}: found nothing as its {name!r}")
        given = [name for name in hints if name in value]
        return kind(**{n: fitted(hints[n], value[n], f"{what}: {n}") for n in given})
    if made is dict and isinstance(value, dict):
        items = value.items()
        return {fitted(str, k, what): fitted(args[1], v, what) for k, v in items}
    if NoneType in args:
        return None if value is None else fitted(args[0], value, what)
    if made in (list, tuple) and isinstance(value, list | tuple):
        kinds = args[:1] * len(value) if made is list or args[-1] is ... else args
        if len(kinds) == len(value):
            return made(fitted(k, v, what) for k, v in zip(kinds, value, strict=True))
    if value is None and kind is int:
        return 0
    # Moments of a torn segment have up to 65 bits; a file could hold any number.
    huge = isinstance(value, int) and abs(value) >= 1 << 80
    if hints or args or not isinstance(value, kind) or huge:
        raise ValueError(f"{what}: found {value!r:.60}")
    return value


def picked(one: object, names: str) -> dict[str, Any]:
    """Return the attributes of those names, which are a text's words."""
    return {name: getattr(one, name) for name in names.split()}


def _lower(b: int, per_octave: int) -> int:
    if per_octave == 1:
        return 1 << (b - 1) if b else 0
    return b if b < 4 else (4 + b % 4) << (b // 4 - 1)


@lru_cache(maxsize=64)
def _places(
    bounds: tuple[float, ...], per_octave: int, n: int
) -> tuple[tuple[int, float], ...]:
    """Return the bucket of each bound, and the share of it that is below the bound."""
    places = []
    for bound in bounds:
        b = 0
        while b < n and _lower(b + 1, per_octave) <= bound:
            b += 1
        low = _lower(b, per_octave)
        share = (bound - low) / (_lower(b + 1, per_octave) - low)
        places.append((b, max(0.0, share) if b < n else 0.0))
    return tuple(places)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by size, `per_octave` (1 or 4) buckets to each power of two.

    With 1, bucket b holds the values of b bits, bucket 0 zeros. With 4, the
    first four buckets hold 0 to 3, and each later octave has its quarters.
    """

    count: int
    sum: int
    buckets: tuple[int, ...]
    per_octave: int = 1

    @classmethod
    def of(cls, words: Sequence[int], per_octave: int = 4) -> Histogram:
        """Return what the words of a segment's histogram say."""
        return cls(words[0], words[1], tuple(words[2:]), per_octave)

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def lower(self, b: int) -> int:
        """Return the smallest value of bucket `b`."""
        return _lower(b, self.per_octave)

    def percentile(self, q: float) -> float:
        """Return the value below which a share `q` (0 to 1) lies; 0 when empty.

        The result is exact to the bucket, in which values are taken to be evenly
        spread.
        """
        total = sum(self.buckets)  # `count` may be a moment older
        wanted = q * total
        seen = 0
        for b, n in enumerate(self.buckets):
            if n and seen + n >= wanted:
                low = self.lower(b)
                if low == 0:
                    return 0.0
                width = self.lower(b + 1) - low
                return low + width * max(0.0, wanted - seen) / n
            seen += n
        return 0.0

    def below(self, bounds: Sequence[float]) -> list[int]:
        """Return how many values lie at or below each of the rising `bounds`.

        A bound inside a bucket gets that share of its count, rounded down. So the
        results never fall, neither along the bounds nor as counts grow.
        """
        before = [0, *accumulate(self.buckets)]
        places = _places(tuple(bounds), self.per_octave, len(self.buckets))
        return [
            before[b] + int(self.buckets[b] * share) if share else before[b]
            for b, share in places
        ]

    def _with(self, other: Histogram, done: Callable[[int, int], int]) -> Histogram:
        return Histogram(
            done(self.count, other.count),
            done(self.sum, other.sum),
            tuple(map(done, self.buckets, other.buckets)),
            self.per_octave,
        )

    def __add__(self, other: Histogram) -> Histogram:
        return self._with(other, add)

    @staticmethod
    def total(parts: Iterable[Histogram]) -> Histogram:
        """Return all of them together; an empty one for none."""
        found = list(parts)
        return reduce(Histogram.__add__, found) if found else Histogram(0, 0, ())

    def __sub__(self, older: Histogram) -> Histogram:
        """Return what was counted since `older`, an earlier reading of the same."""
        return self._with(older, sub)


class SegmentInfo(NamedTuple):
    pid: int
    process_start: int
    monotonic_ns: int
    realtime_ns: int
    pid_namespace: int
    rank: str
    local_rank: str
    world_size: str
    job_id: str
    pod: str
    package: str  # the version of npu_dispatch
    torch: str  # and of torch
    stack_start: int  # where the stack of its program begins; 0: not known
    command: tuple[str, ...]  # its words; the last one may be cut short

    @property
    def name(self) -> str:
        """The script, module or command that it ran."""
        return script_name(self.command)


class ProcessStats(NamedTuple):
    sanitizer_enabled: bool
    trace_dropped: int
    async_waiters: int
    async_wakeup_ns: Histogram
    unpublished_streams: int  # those whose figures had no memory
    optimizer_steps: int


class DeviceStats(NamedTuple):
    """What happened on one device. `wait_ns` includes waits that still last."""

    device: int
    waits: dict[str, int]
    wait_ns: dict[str, int]
    waiting: dict[str, int]
    memory_total: int
    allocated: int
    allocated_peak: int
    reserved: int
    allocations: int
    alloc_retries: int
    ooms: int
    sanitizer_bytes: int
    sanitizer_ns: int
    graph_captures: int
    graph_replays: int
    graph_capture_failures: dict[str, int]  # by cause
    events_created: int
    events_recorded: int
    events_pending: int  # recorded, but not yet seen to be done
    # By kind, then (pageable, pinned).
    copy_bytes: dict[str, tuple[int, int]]
    # "warn" and "error", then by reason.
    sync_violations: dict[str, dict[str, int]]
    sanitizer_reports: dict[str, int]


class RecentTask(NamedTuple):
    """`outcome`: begun (it may still run), failed or dropped."""

    task: int  # its number in its stream
    op: str
    at: str  # the Python line that launched it; "" when not known
    outcome: str


class Exemplar(NamedTuple):
    """One task of a time histogram."""

    task: int
    value_ns: int
    at_ns: int  # CLOCK_MONOTONIC


class OpenWait(NamedTuple):
    """A host thread that waits for a stream to be done with tasks below `until`."""

    thread: int  # its number, as in /proc/PID/task
    reason: str  # of WAIT_REASONS, or full_queue
    at: str  # the Python line; "" when not known
    device: int
    stream: int
    until: int
    since_ns: int  # CLOCK_MONOTONIC
    ns: int  # so far


class SiteWaits(NamedTuple):
    """What host waits cost at one Python line. `reason` is the newest one's."""

    at: str
    reason: str
    waits: int
    wait_ns: int


class SiteTasks(NamedTuple):
    """What the sampled tasks of one Python line took: one task in SAMPLE_PERIOD."""

    at: str
    tasks: int
    ns: int


class OpCost(NamedTuple):
    """What an operator's sampled tasks took: one task in SAMPLE_PERIOD."""

    op: str
    tasks: int
    ns: int


class StreamStats(NamedTuple):
    """One stream. Times that still run are counted up to the reading."""

    device: int
    stream: int
    state: str
    capacity: int
    submitted: int
    retired: int
    failed: int
    dropped: int
    parks: int
    spins: int
    thread: int
    last_retired_ns: int
    woken_ns: int
    head_queued_ns: int  # of the newest timed task that has begun
    alive_ns: int
    idle_ns: int
    idle: bool
    held_ns: int
    held_ns_by: dict[str, int]  # by cause
    held_by: tuple[int, int] | None  # device, stream
    held_until: int
    starved_ns: int
    running: str  # the oldest task's operator; "" for none, or where it has not begun
    running_at: str  # the Python line that launched it
    errors: dict[str, int]
    failure: str  # of a stream that has failed, "operator: why"; "" where not known
    failure_at: str  # the Python line that launched what failed
    full_waits: int
    full_wait_ns: int
    full_waiting: int
    capturing: bool
    bypassed: dict[str, int]  # tasks past the queue, by reason
    # Host waits for all that the stream had been given, by reason: how many,
    # and nanoseconds.
    drains: dict[str, tuple[int, int]]
    deferred_bytes: int
    depth_histogram: Histogram
    queued_ns: Histogram
    latency_ns: Histogram
    run_ns: dict[str, Histogram]  # by kind of work: kernel, event, h2d, ...
    call_ns: Histogram  # an operator's entry until its task is queued
    launch_ns: Histogram  # the part in which the task is put into the queue

    @property
    def depth(self) -> int:
        """Tasks submitted and not yet retired.

        The two counters are read one after the other, so the difference can be
        negative for a moment on a busy stream, which is reported as empty.
        """
        return max(0, self.submitted - self.retired)

    @property
    def inline_tasks(self) -> int:
        """Tasks that ran on their caller, without a queue."""
        return self.bypassed["sync_launch_stream"]

    @property
    def busy_ns(self) -> int:
        """Time the launcher spent on tasks: neither idle nor held."""
        return max(0, self.alive_ns - self.idle_ns - self.held_ns)
