"""The reader of a segment."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from npu_dispatch.observe.segment.collectives import CollectiveLog, read_log
from npu_dispatch.observe.segment.layout import (
    BEING_WRITTEN,
    BYPASSES,
    CAPTURE_FAILURES,
    COPY_KINDS,
    DEPTH_BUCKETS,
    DEVICE_WORDS,
    ERROR_CODES,
    EXEMPLAR_OCTAVES,
    HEADER,
    HOLDS,
    LAYOUT_VERSION,
    MAGIC,
    MAX_SITES,
    NAME,
    OFFSETS,
    OPEN_WAIT,
    OPEN_WAIT_REASONS,
    OPEN_WAITS,
    RECENT_DROPPED,
    RECENT_FAILED,
    RECENT_TASKS,
    REPORT_KINDS,
    SITE,
    STATE_MASK,
    STREAM_HEAD,
    STREAM_ID_MASK,
    STREAM_STATES,
    STREAM_WORDS,
    THREAD_MASK,
    TIME_BUCKETS,
    WAIT_REASONS,
    WORD,
    WORKS,
    beyond_room,
    running_ns,
    text_of,
)
from npu_dispatch.observe.segment.sites import SiteEntry, tasks_by_line, waits_by_line
from npu_dispatch.observe.segment.untrusted_file import UnsafeFileError, UntrustedFile
from npu_dispatch.observe.segment.values import (
    DeviceStats,
    Exemplar,
    Histogram,
    OpCost,
    OpenWait,
    ProcessStats,
    RecentTask,
    SegmentInfo,
    SiteTasks,
    SiteWaits,
    StreamStats,
)

_HISTOGRAM_WORDS = TIME_BUCKETS + 2
# How far a stream's block is read at once: up to the histograms of kinds of work.
_STREAM = struct.Struct(
    f"<{OFFSETS['StreamBlock.run_ns'] // 8 + len(WORKS) * _HISTOGRAM_WORDS}Q"
)
_EXEMPLARS = struct.Struct(f"<{3 * EXEMPLAR_OCTAVES}Q")
_EXEMPLAR_TASKS = struct.Struct("<" + "Q16x" * EXEMPLAR_OCTAVES)
_AT = {
    name.partition(".")[2]: offset // 8
    for name, offset in OFFSETS.items()
    if name.startswith("StreamBlock.")
}


class StatsError(RuntimeError):
    """The file is not a statistics segment this version can read."""


def _pick(names: Sequence[str], number: int) -> str:
    """Return the name of a number in the file; raise StatsError if it has none."""
    if number < len(names):
        return names[number]
    raise StatsError(f"expected a number below {len(names)}, found {number}")


def _histogram(words: Sequence[int], at: int) -> Histogram:
    return Histogram(
        words[at], words[at + 1], tuple(words[at + 2 : at + _HISTOGRAM_WORDS]), 4
    )


class StatsReader:
    """A read-only view of one process's counters.

    `any_user`: that process may be another user's.
    """

    def __init__(self, path: Path, *, any_user: bool = False) -> None:
        try:
            self._file = UntrustedFile(path, any_user=any_user)
        except UnsafeFileError as error:
            raise StatsError(str(error)) from None
        # Of this file, even if another has its name by now.
        self.inode, self.owner = self._file.inode, self._file.owner
        self._names: dict[int, str] = {}
        self._blocks: dict[tuple[int, int], int] = {}  # device, stream
        try:
            self._read_header(path)
        except StatsError:
            self._file.close()
            raise

    def lives(self) -> bool | None:
        """Return whether the segment's process lives, or None if that is not known."""
        i = self.info
        return self._file.owner_lives(i.pid, i.process_start, i.pid_namespace)

    def _bytes(self, at: int, size: int) -> bytes:
        try:
            return self._file.read(at, size)
        except OSError as error:
            raise StatsError(str(error)) from None

    def _read_header(self, path: Path) -> None:
        if self._file.size < HEADER.size:
            raise StatsError(f"{path}: too short for a statistics segment")
        fields = HEADER.unpack(self._bytes(0, HEADER.size))
        magic, version, header, device, devices, stream, streams, pid, names = fields[
            :9
        ]
        if magic != MAGIC:
            raise StatsError(f"{path}: not a statistics segment")
        if version != LAYOUT_VERSION:
            raise StatsError(
                f"{path}: expected layout {LAYOUT_VERSION}, found {version}"
            )
        if claim := beyond_room(devices=devices, streams=streams, names=names):
            raise StatsError(f"{path}: {claim}; it can be removed")
        sizes = (OFFSETS["DeviceBlock.size"], OFFSETS["StreamBlock.size"])
        self._streams_at = -(-(header + devices * device) // 64) * 64
        self._names_at = self._streams_at + streams * stream
        end = self._names_at + names * NAME.size
        if (device, stream) != sizes or self._file.size < end:
            raise StatsError(
                f"{path}: its blocks do not have the sizes of layout {LAYOUT_VERSION}"
            )
        *texts, command = fields[13:]
        words = command.rstrip(b"\0").split(b"\0")
        shown = tuple(word.decode(errors="replace") for word in words)
        self.info = SegmentInfo(*(pid, *fields[9:13], *map(text_of, texts), shown))
        self._devices = range(devices)
        self._device_base, self._device_bytes = header, device
        self._streams: list[int] = [
            self._streams_at + i * stream for i in range(streams)
        ]
        self._n_names = names

    def _word(self, at: int) -> int:
        value: int = WORD.unpack(self._bytes(at, WORD.size))[0]
        return value

    def _words(self, at: int, n: int) -> tuple[int, ...]:
        return struct.unpack(f"<{n}Q", self._bytes(at, 8 * n))

    def _open_waits_ns(self, at: int, n: int, now: int) -> list[tuple[int, int]]:
        """Return how many waits of each of n kinds last, and how long in sum.

        The two words of a kind are n words apart. They belong together only if
        neither changed during the reading; a wait that is shorter than a reading is
        counted when it has ended.
        """
        found: list[tuple[int, int] | None] = [None] * n
        before = self._words(at, 2 * n)
        for _ in range(8):
            again = self._words(at, 2 * n)
            for i in range(n):
                pair = again[i], again[n + i]
                if found[i] is None and pair == (before[i], before[n + i]):
                    found[i] = pair[0], max(0, pair[0] * now - pair[1])
            if all(pair is not None for pair in found):
                break
            before = again
        return [pair or (0, 0) for pair in found]

    def process(self) -> ProcessStats:
        """Return what concerns the process as a whole."""
        at = OFFSETS["Segment.process"]
        enabled, dropped, waiters = self._words(at, 3)
        wakeup = self._histogram(at + OFFSETS["ProcessBlock.async_wakeup_ns"])
        hidden, steps = self._words(at + OFFSETS["ProcessBlock.unpublished_streams"], 2)
        return ProcessStats(bool(enabled), dropped, waiters, wakeup, hidden, steps)

    def devices(self) -> list[DeviceStats]:
        """Return the devices that exist."""
        size = self._device_bytes
        all_of_them = self._bytes(self._device_base, size * len(self._devices))
        empty = bytes(size)
        return [
            self._device(i, all_of_them[i * size : (i + 1) * size])
            for i in self._devices
            if all_of_them[i * size : (i + 1) * size] != empty
        ]

    def _device(self, index: int, block: bytes) -> DeviceStats:
        def words(name: str, n: int) -> tuple[int, ...]:
            return struct.unpack_from(f"<{n}Q", block, OFFSETS[f"DeviceBlock.{name}"])

        def by(keys: Sequence[str], values: Sequence[int]) -> dict[str, int]:
            return dict(zip(keys, values, strict=True))

        n = len(WAIT_REASONS)
        now = time.monotonic_ns()
        at = self._device_base + index * self._device_bytes
        waits, ended = words("waits", n), words("wait_ns", n)
        lasting = self._open_waits_ns(at + OFFSETS["DeviceBlock.waiting"], n, now)
        copies = words("copy_bytes", 2 * len(COPY_KINDS))
        violations = words("sync_violations", 2 * n)
        reports = words("sanitizer_reports", len(REPORT_KINDS))
        failures = words("graph_capture_failures", len(CAPTURE_FAILURES))
        return DeviceStats(
            device=index,
            waits=by(WAIT_REASONS, waits),
            wait_ns=by(
                WAIT_REASONS,
                [a + b[1] for a, b in zip(ended, lasting, strict=True)],
            ),
            waiting=by(WAIT_REASONS, [count for count, _ in lasting]),
            copy_bytes={
                kind: (copies[2 * i], copies[2 * i + 1])
                for i, kind in enumerate(COPY_KINDS)
            },
            sync_violations={
                "warn": by(WAIT_REASONS, violations[:n]),
                "error": by(WAIT_REASONS, violations[n:]),
            },
            sanitizer_reports=by(REPORT_KINDS, reports),
            graph_capture_failures=by(CAPTURE_FAILURES, failures),
            **{name: words(name, 1)[0] for name in DEVICE_WORDS},
        )

    def _used(self, at: int) -> bool:
        return bool(WORD.unpack(self._bytes(at, 8))[0] & STATE_MASK)

    def depth(self) -> int:
        """Return how many tasks are queued now on all streams; cheap enough to poll."""
        total = 0
        last = OFFSETS["StreamBlock.retired"]
        for at in self._streams:
            words = self._words(at, last // 8 + 1)
            if not words[0] & STATE_MASK:
                break
            total += max(0, words[_AT["tail"]] - words[-1])
        return total

    def streams(self) -> list[StreamStats]:
        """Return the streams made so far."""
        found = []
        for at in self._streams:  # handed out in this order
            if not self._used(at):
                break
            found.append(self._stream(at))
        return found

    def _histogram(self, at: int) -> Histogram:
        return _histogram(self._words(at, _HISTOGRAM_WORDS), 0)

    def _name(self, key: int) -> str:
        """Return the text of a name's key; "" when it was never published."""
        if key and key not in self._names:
            for found, _, _, text in self._all_names():
                if found:
                    self._names[found] = text_of(text)
            self._names.setdefault(key, "")
        return self._names.get(key, "")

    def _all_names(self) -> Iterator[tuple[int, int, int, bytes]]:
        return NAME.iter_unpack(self._bytes(self._names_at, self._n_names * NAME.size))

    def ops(self) -> list[OpCost]:
        """Return what the sampled tasks of each operator cost, the costliest first."""
        costs: dict[str, tuple[int, int]] = {}
        for key, tasks, ns, text in self._all_names():
            if key and tasks:
                op = text_of(text)
                before = costs.get(op, (0, 0))
                costs[op] = before[0] + tasks, before[1] + ns
        found = [OpCost(op, *cost) for op, cost in costs.items()]
        return sorted(found, key=lambda cost: -cost.ns)

    def collectives(self) -> CollectiveLog | None:
        """Return the process's collective calls, or None when it is in no group."""
        return read_log(*self.behind(), self._site)

    def behind(self) -> tuple[int, Callable[[int, int], bytes]]:
        """Return the file's size, and what reads it: for what follows the segment."""
        self._file.grow()
        return self._file.size, self._bytes

    def open_waits(self) -> list[OpenWait]:
        """Return the host threads that wait now, the longest wait first."""
        now = time.monotonic_ns()
        found = []
        at, size = OFFSETS["Segment.waits"], OPEN_WAITS * OPEN_WAIT.size
        entries = list(OPEN_WAIT.iter_unpack(self._bytes(at, size)))
        again = OPEN_WAIT.iter_unpack(self._bytes(at, size))
        for entry, (owner, *_) in zip(entries, again, strict=True):
            _, since, reason, site, stream, until = entry
            thread = owner & THREAD_MASK
            # If the owner is the same before and after, all words are that wait's.
            if thread in (0, BEING_WRITTEN) or entry[0] != owner:
                continue
            wait = OpenWait(
                thread=thread,
                reason=_pick(OPEN_WAIT_REASONS, reason),
                at=self._site(site),
                device=stream >> 32,
                stream=stream & STREAM_ID_MASK,
                until=until,
                since_ns=since,
                ns=max(0, now - since),
            )
            found.append(wait)
        return sorted(found, key=lambda wait: wait.since_ns)

    def waits_by_site(self) -> list[SiteWaits]:
        """Return what host waits cost by Python line, the costliest first.

        Waits that last are included, up to now.
        """
        return waits_by_line(self._all_sites(), self.open_waits())

    def tasks_by_site(self) -> list[SiteTasks]:
        """Return what the sampled tasks of each Python line cost, the most first."""
        return tasks_by_line(self._all_sites())

    def _all_sites(self) -> Iterator[SiteEntry]:
        made = self._word(OFFSETS["Segment.process"] + OFFSETS["ProcessBlock.sites"])
        size = min(made, MAX_SITES) * SITE.size
        for entry in SITE.iter_unpack(self._bytes(OFFSETS["Segment.sites"], size)):
            known, reason, waits, wait_ns, tasks, ns, text = entry
            if known:
                name = _pick(OPEN_WAIT_REASONS, reason)
                yield SiteEntry(text_of(text), name, waits, wait_ns, tasks, ns)

    def _block_of(self, device: int, stream: int) -> int | None:
        at = self._blocks.get((device, stream))
        if at is None:
            for at in self._streams:
                state, of, number, _ = STREAM_HEAD.unpack(
                    self._bytes(at, STREAM_HEAD.size)
                )
                if not state:
                    return None
                self._blocks.setdefault((of, number), at)
                if (of, number) == (device, stream):
                    return at
        return at

    def recent(self, device: int, stream: int) -> list[RecentTask]:
        """Return the last tasks that a stream has begun, oldest first."""
        at = self._block_of(device, stream)
        if at is None:
            return []
        tail = self._word(at + OFFSETS["StreamBlock.tail"])
        retired = self._word(at + OFFSETS["StreamBlock.retired"])
        words = self._words(at + OFFSETS["StreamBlock.recent"], 2 * RECENT_TASKS)
        # These the launcher may have overwritten meanwhile, or may be writing.
        safe = self._word(at + OFFSETS["StreamBlock.retired"]) - RECENT_TASKS + 1
        first = max(0, retired - RECENT_TASKS + 1, safe)
        found = []
        for task in range(first, min(retired + 1, tail)):
            name, site = words[2 * (task % RECENT_TASKS) :][:2]
            outcome = "begun"
            if site & (RECENT_DROPPED | RECENT_FAILED):
                outcome = "dropped" if site & RECENT_DROPPED else "failed"
            line = self._site(site & STREAM_ID_MASK)
            found.append(RecentTask(task, self._name(name), line, outcome))
        return found

    def exemplars(self, device: int, stream: int, name: str) -> list[Exemplar]:
        """Return tasks of a histogram, "latency" or "queued", smallest time first."""
        at = self._block_of(device, stream)
        if at is None:
            return []
        at += OFFSETS[f"StreamBlock.{name}_exemplars"]
        words = _EXEMPLARS.unpack(self._bytes(at, _EXEMPLARS.size))
        again = _EXEMPLAR_TASKS.unpack(self._bytes(at, _EXEMPLAR_TASKS.size))
        # If the task is the same before and after, the other two words are its own.
        return [
            Exemplar(task - 1, words[3 * i + 1], words[3 * i + 2])
            for i, task in enumerate(words[::3])
            if task and again[i] == task
        ]

    def _site(self, number: int) -> str:
        """Return the line of a call site; "" when it was never published."""
        if not 0 < number < MAX_SITES:
            return ""
        at = OFFSETS["Segment.sites"] + number * SITE.size
        if at + SITE.size > self._file.size:
            return ""
        known, *_, text = SITE.unpack(self._bytes(at, SITE.size))
        return text_of(text) if known else ""

    def _head(self, at: int, retired: int, tail: int) -> tuple[str, str]:
        """Return the operator and the line of the oldest task not retired."""
        if tail <= retired:
            return "", ""
        entry = retired % RECENT_TASKS * OFFSETS["RecentTask.size"]
        name, site = self._words(at + OFFSETS["StreamBlock.recent"] + entry, 2)
        return self._name(name), self._site(site & STREAM_ID_MASK)

    def _stream(self, at: int) -> StreamStats:
        # All words are read at once, which costs a tenth of reading them by name.
        # `tail` is read again afterwards, so that a busy stream seems a little too
        # deep, and never has a negative depth.
        now = time.monotonic_ns()
        block = self._bytes(at, _STREAM.size)
        state, device, stream, capacity = STREAM_HEAD.unpack_from(block)
        words = _STREAM.unpack(block)
        tail = self._word(at + OFFSETS["StreamBlock.tail"])

        def word(name: str) -> int:
            return int(words[_AT[name]])

        def several(name: str, n: int) -> tuple[int, ...]:
            return words[_AT[name] : _AT[name] + n]

        idle_ns, idle = running_ns(word("idle"), now)
        holds = [running_ns(hold, now) for hold in several("held", len(HOLDS))]
        held = any(runs for _, runs in holds)
        retired = word("retired")
        running, running_at = self._head(at, retired, tail)
        alive_ns, _ = running_ns(word("alive"), now)
        held_by = word("held_by") - 1 if held else -1
        [(full_waiting, full_lasting)] = self._open_waits_ns(
            at + OFFSETS["StreamBlock.full_waiting"], 1, now
        )
        depth = several("depth", DEPTH_BUCKETS + 2)
        errors = several("errors", len(ERROR_CODES))
        return StreamStats(
            device=device,
            stream=stream,
            state=_pick(STREAM_STATES, state),
            capacity=capacity,
            retired=retired,
            submitted=tail,
            alive_ns=alive_ns,
            idle_ns=idle_ns,
            idle=idle,
            held_ns=sum(ns for ns, _ in holds),
            held_ns_by={cause: ns for cause, (ns, _) in zip(HOLDS, holds, strict=True)},
            held_by=(held_by >> 32, held_by & STREAM_ID_MASK) if held_by >= 0 else None,
            running=running,
            running_at=running_at,
            capturing=bool(word("capturing")),
            bypassed=dict(
                zip(BYPASSES, several("bypassed", len(BYPASSES)), strict=True)
            ),
            drains=dict(
                zip(
                    WAIT_REASONS,
                    zip(
                        several("drains", len(WAIT_REASONS)),
                        several("drain_ns", len(WAIT_REASONS)),
                        strict=True,
                    ),
                    strict=True,
                )
            ),
            errors=dict(zip(ERROR_CODES[1:], errors[1:], strict=True)),
            full_wait_ns=word("full_wait_ns") + full_lasting,
            full_waiting=full_waiting,
            depth_histogram=Histogram(depth[0], depth[1], depth[2:]),
            queued_ns=_histogram(words, _AT["queued_ns"]),
            latency_ns=_histogram(words, _AT["latency_ns"]),
            run_ns={
                kind: _histogram(words, _AT["run_ns"] + i * _HISTOGRAM_WORDS)
                for i, kind in enumerate(WORKS)
            },
            launch_ns=_histogram(words, _AT["launch_ns"]),
            **{name: word(name) for name in STREAM_WORDS},
        )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
