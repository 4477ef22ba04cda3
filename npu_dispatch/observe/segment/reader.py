"""The reader of a segment."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from npu_dispatch.observe.segment import layout, values
from npu_dispatch.observe.segment.collectives import CollectiveLog, read_log
from npu_dispatch.observe.segment.system import is_here, stack_start
from npu_dispatch.observe.segment.untrusted_file import (
    Closed,
    UnsafeFileError,
    UntrustedFile,
)

_HISTOGRAM_WORDS = layout.TIME_BUCKETS + 2


class StatsError(RuntimeError):
    """The file is not a statistics segment this version can read."""


def _pick(names: Sequence[str], number: int) -> str:
    """Return the name of a number in the file; raise StatsError if it has none."""
    if number < len(names):
        return names[number]
    raise StatsError(f"expected a number below {len(names)}, found {number}")


def _by(names: Sequence[str], values: Iterable[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def _summed(rows: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Add up the counts and the nanoseconds of each name, or line of Python."""
    sums: dict[str, tuple[int, int]] = {}
    for name, count, ns in rows:
        if count:
            before = sums.get(name, (0, 0))
            sums[name] = before[0] + count, before[1] + ns
    return [(name, *both) for name, both in sums.items()]


class StatsReader(Closed):
    """A read-only view of one process's counters.

    `any_user`: that process may be another user's.
    """

    def __init__(self, path: Path, *, any_user: bool = False) -> None:
        try:
            self._file = UntrustedFile(path, any_user=any_user, raises=StatsError)
        except UnsafeFileError as error:
            raise StatsError(str(error)) from None
        # Of this file, even if another has its name by now.
        self.inode, self.owner = self._file.inode, self._file.owner
        self.path = path
        self._names: dict[int, str] = {}
        self._blocks: dict[tuple[int, int], int] = {}  # device, stream
        try:
            self._read_header()
        except StatsError:
            self._file.close()
            raise

    def lives(self) -> bool | None:
        """Return whether the segment's process lives, or None if that is not known."""
        i = self.info
        return self._file.owner_lives(i.pid, i.process_start, i.pid_namespace)

    def is_replaced(self) -> bool:
        """Return whether the process is known to run another program by now."""
        began = self.info.stack_start
        if not began or not is_here(self.info.pid_namespace):
            return False
        return stack_start(self.info.pid) not in (0, began)

    def _read_header(self) -> None:
        path = self.path
        if self._file.size < layout.HEADER.size:
            raise StatsError(f"{path}: too short for a statistics segment")
        head = layout.HEADER.read(self._file.read(0, layout.HEADER.size))
        if head["magic"] != layout.MAGIC:
            raise StatsError(f"{path}: not a statistics segment")
        version = layout.LAYOUT_VERSION
        if head["version"] != version:
            raise StatsError(
                f"{path}: expected layout {version}, found {head['version']}"
            )
        if claim := layout.beyond_room(head):
            raise StatsError(f"{path}: {claim}; it can be removed")
        self._devices_at, devices = head["header_bytes"], head["device_blocks"]
        streams_at = -(-(self._devices_at + devices * layout.DEVICE.size) // 64) * 64
        self._names_at = streams_at + head["stream_blocks"] * layout.STREAM.size
        self._names_size = head["names"] * layout.NAME.size
        sizes = head["device_block_bytes"], head["stream_block_bytes"]
        end = self._names_at + self._names_size
        if sizes != (layout.DEVICE.size, layout.STREAM.size) or self._file.size < end:
            raise StatsError(
                f"{path}: its blocks do not have the sizes of layout {version}"
            )
        self._devices_size = devices * layout.DEVICE.size
        self._streams = range(streams_at, self._names_at, layout.STREAM.size)
        words = head["command"].rstrip(b"\0").split(b"\0")
        command = tuple(word.decode(errors="replace") for word in words)
        self.info = values.filled(values.SegmentInfo, head, command=command)

    def _open_waits_ns(self, at: int, n: int, now: int) -> list[tuple[int, int]]:
        """Return how many waits of each of n kinds last, and how long in sum.

        The two words of a kind are n words apart. They belong together only if
        neither changed during the reading; a wait that is shorter than a reading is
        counted when it has ended.
        """
        words = struct.Struct(f"<{2 * n}Q")
        found: list[tuple[int, int] | None] = [None] * n
        before = words.unpack(self._file.read(at, words.size))
        for _ in range(8):
            again = words.unpack(self._file.read(at, words.size))
            for i in range(n):
                pair = again[i], again[n + i]
                if found[i] is None and pair == (before[i], before[n + i]):
                    found[i] = pair[0], max(0, pair[0] * now - pair[1])
            if all(pair is not None for pair in found):
                break
            before = again
        return [pair or (0, 0) for pair in found]

    def _process(self) -> dict[str, Any]:
        return layout.PROCESS.read(
            self._file.read(layout.SEGMENT.at["process"], layout.PROCESS.size)
        )

    def process(self) -> values.ProcessStats:
        """Return what concerns the process as a whole."""
        words = self._process()
        return values.filled(
            values.ProcessStats,
            words,
            sanitizer_enabled=bool(words["sanitizer_enabled"]),
            async_wakeup_ns=values.Histogram.of(words["async_wakeup_ns"]),
        )

    def devices(self) -> list[values.DeviceStats]:
        """Return the devices that exist."""
        blocks = self._file.read(self._devices_at, self._devices_size)
        return [
            self._device(at // layout.DEVICE.size, layout.DEVICE.read(blocks, at))
            for at in range(0, len(blocks), layout.DEVICE.size)
            if blocks[at : at + layout.DEVICE.size] != bytes(layout.DEVICE.size)
        ]

    def _device(self, index: int, words: Mapping[str, Any]) -> values.DeviceStats:
        n = len(layout.WAIT_REASONS)
        at = self._devices_at + index * layout.DEVICE.size + layout.DEVICE.at["waiting"]
        lasting = self._open_waits_ns(at, n, time.monotonic_ns())
        ended = zip(words["wait_ns"], lasting, strict=True)
        copies, violations = words["copy_bytes"], words["sync_violations"]
        return values.filled(
            values.DeviceStats,
            words,
            device=index,
            waits=_by(layout.WAIT_REASONS, words["waits"]),
            wait_ns=_by(layout.WAIT_REASONS, [ns + more for ns, (_, more) in ended]),
            waiting=_by(layout.WAIT_REASONS, [count for count, _ in lasting]),
            copy_bytes=_by(
                layout.COPY_KINDS, zip(copies[::2], copies[1::2], strict=True)
            ),
            sync_violations={
                "warn": _by(layout.WAIT_REASONS, violations[:n]),
                "error": _by(layout.WAIT_REASONS, violations[n:]),
            },
            sanitizer_reports=_by(layout.REPORT_KINDS, words["sanitizer_reports"]),
            graph_capture_failures=_by(
                layout.CAPTURE_FAILURES, words["graph_capture_failures"]
            ),
        )

    def depth(self) -> int:
        """Return how many tasks are queued now on all streams."""
        return sum(stream.depth for stream in self.streams())

    def streams(self) -> list[values.StreamStats]:
        """Return the streams made so far."""
        return [self._stream(*block) for block in self._used()]

    def _used(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield the place of each stream, a moment, and what it said right after."""
        for at in self._streams:  # handed out in this order
            now = time.monotonic_ns()
            # A stream is read at once, which costs a tenth of reading word by word.
            words = layout.STREAM.read(self._file.read(at, layout.STREAM.size))
            if not words["state"]:
                return
            self._blocks[words["device"], words["stream_id"]] = at
            yield at, now, words

    def _name(self, key: int) -> str:
        """Return the text of a name's key; "" when it was never published."""
        if key and key not in self._names:
            self._names |= {row["key"]: row["text"] for row in self._all_names()}
            self._names.setdefault(key, "")
        return self._names.get(key, "")

    def _all_names(self) -> Iterator[dict[str, Any]]:
        rows = layout.NAME.rows(self._file.read(self._names_at, self._names_size))
        return (row for _, row in rows)

    def ops(self) -> list[values.OpCost]:
        """Return what the sampled tasks of each operator cost, the costliest first."""
        rows = _summed((r["text"], r["tasks"], r["ns"]) for r in self._all_names())
        return sorted((values.OpCost(*row) for row in rows), key=lambda cost: -cost.ns)

    def collectives(self) -> CollectiveLog | None:
        """Return the process's collective calls, or None when it is in no group."""
        return read_log(*self.behind(), self._site)

    def behind(self) -> tuple[int, Callable[[int, int], bytes]]:
        """Return the file's size, and what reads it: for what follows the segment."""
        self._file.grow()
        return self._file.size, self._file.read

    def open_waits(self) -> list[values.OpenWait]:
        """Return the host threads that wait now, the longest wait first."""
        now = time.monotonic_ns()
        found = [
            values.OpenWait(
                thread=row["owner"] & layout.THREAD_MASK,
                reason=_pick(layout.OPEN_WAIT_REASONS, row["reason"]),
                at=self._site(row["site"]),
                device=row["stream"] >> 32,
                stream=row["stream"] & layout.STREAM_ID_MASK,
                until=row["until"],
                since_ns=row["since"],
                ns=max(0, now - row["since"]),
            )
            for row in layout.OPEN_WAIT.steady(
                self._file.read, layout.SEGMENT.at["waits"], layout.OPEN_WAITS
            )
            if row["owner"] & layout.THREAD_MASK not in (0, layout.BEING_WRITTEN)
        ]
        return sorted(found, key=lambda wait: wait.since_ns)

    def waits_by_site(self) -> list[values.SiteWaits]:
        """Return what host waits cost by line, open ones too; the costliest first.

        Several call stacks can end in one line; each of them has an entry.
        """
        entries = [
            (
                r["text"],
                _pick(layout.OPEN_WAIT_REASONS, r["reason"]),
                r["waits"],
                r["wait_ns"],
            )
            for r in self._all_sites()
        ]
        entries += [(w.at, w.reason, 1, w.ns) for w in self.open_waits() if w.at]
        reasons = {at: reason for at, reason, waits, _ in entries if waits}
        rows = _summed((at, waits, ns) for at, _, waits, ns in entries)
        found = [values.SiteWaits(at, reasons[at], waits, ns) for at, waits, ns in rows]
        return sorted(found, key=lambda site: -site.wait_ns)

    def tasks_by_site(self) -> list[values.SiteTasks]:
        """Return what the sampled tasks of each line cost; the most tasks first."""
        rows = _summed((r["text"], r["tasks"], r["ns"]) for r in self._all_sites())
        return sorted(
            (values.SiteTasks(*row) for row in rows), key=lambda site: -site.tasks
        )

    def _all_sites(self) -> Iterator[dict[str, Any]]:
        size = min(self._process()["sites"], layout.SITES) * layout.SITE.size
        rows = layout.SITE.rows(self._file.read(layout.SEGMENT.at["sites"], size))
        return (row for _, row in rows if row["known"])

    def recent(self, device: int, stream: int) -> list[values.RecentTask]:
        """Return the last tasks that a stream has begun, oldest first."""
        at = self._block_of(device, stream)
        if at is None:
            return []
        words = layout.STREAM.read(self._file.read(at, layout.STREAM.size))
        retired_at = at + layout.STREAM.at["retired"]
        (now,) = layout.WORD.unpack(self._file.read(retired_at, layout.WORD.size))
        # Earlier ones the launcher may have overwritten meanwhile, or may be writing.
        first = max(
            0, words["retired"] - layout.RECENT_TASKS + 1, now - layout.RECENT_TASKS + 1
        )
        found = []
        for task in range(first, min(words["retired"] + 1, words["tail"])):
            entry = self._recent(words, task)
            if entry is None:
                continue
            name, line, flags = entry
            outcome = "failed" if flags & layout.RECENT_FAILED else "begun"
            outcome = "dropped" if flags & layout.RECENT_DROPPED else outcome
            found.append(values.RecentTask(task, name, line, outcome))
        return found

    def _recent(
        self, words: Mapping[str, Any], task: int
    ) -> tuple[str, str, int] | None:
        """Return a task's operator and line, and a word with its outcome.

        None: it has not begun, or others have taken its place.
        """
        row = layout.RECENT.read(
            words["recent"], task % layout.RECENT_TASKS * layout.RECENT.size
        )
        site, shift = row["site"], layout.RECENT_TASK_SHIFT
        if not row["name"] or (site >> shift) ^ task & (1 << 64 - shift) - 1:
            return None
        return self._name(row["name"]), self._site(site & layout.STREAM_ID_MASK), site

    def _block_of(self, device: int, stream: int) -> int | None:
        if (device, stream) not in self._blocks:
            list(self._used())
        return self._blocks.get((device, stream))

    def exemplars(self, device: int, stream: int, name: str) -> list[values.Exemplar]:
        """Return tasks of a histogram, "latency" or "queued", smallest time first."""
        at = self._block_of(device, stream)
        if at is None:
            return []
        at += layout.STREAM.at[f"{name}_exemplars"]
        rows = layout.EXEMPLAR.steady(self._file.read, at, layout.EXEMPLAR_OCTAVES)
        return [
            values.Exemplar(row["task"] - 1, row["value"], row["at"]) for row in rows
        ]

    def _site(self, number: int) -> str:
        """Return the line of a call site; "" when it was never published."""
        at = layout.SEGMENT.at["sites"] + number * layout.SITE.size
        if not 0 < number < layout.SITES or at + layout.SITE.size > self._file.size:
            return ""
        row = layout.SITE.read(self._file.read(at, layout.SITE.size))
        return str(row["text"]) if row["known"] else ""

    def _stream(self, at: int, now: int, words: dict[str, Any]) -> values.StreamStats:
        # `tail` is read again after the block, so that a busy stream seems a little too
        # deep, and never has a negative depth.
        (tail,) = layout.WORD.unpack(
            self._file.read(at + layout.STREAM.at["tail"], layout.WORD.size)
        )
        running = None
        if tail > words["retired"]:
            running = self._recent(words, words["retired"])
        idle_ns, idle = layout.running_ns(words["idle"], now)
        holds = [layout.running_ns(hold, now) for hold in words["held"]]
        by = words["held_by"] - 1 if any(runs for _, runs in holds) else -1
        [(full_waiting, full_lasting)] = self._open_waits_ns(
            at + layout.STREAM.at["full_waiting"], 1, now
        )
        drains = zip(words["drains"], words["drain_ns"], strict=True)
        state = _pick(layout.STREAM_STATES, words["state"])
        failure, failure_at = self._failure(at) if state == "failed" else ("", "")
        n = _HISTOGRAM_WORDS
        runs = (words["run_ns"][n * i : n * (i + 1)] for i in range(len(layout.WORKS)))
        histograms = ("queued_ns", "latency_ns", "call_ns", "launch_ns")
        return values.filled(
            values.StreamStats,
            words | {name: values.Histogram.of(words[name]) for name in histograms},
            stream=words["stream_id"],
            state=state,
            failure=failure,
            failure_at=failure_at,
            submitted=tail,
            alive_ns=layout.running_ns(words["alive"], now)[0],
            idle_ns=idle_ns,
            idle=idle,
            held_ns=sum(ns for ns, _ in holds),
            held_ns_by=_by(layout.HOLDS, (ns for ns, _ in holds)),
            held_by=(by >> 32, by & layout.STREAM_ID_MASK) if by >= 0 else None,
            running=running[0] or "a task" if running else "",
            running_at=running[1] if running else "",
            capturing=bool(words["capturing"]),
            bypassed=_by(layout.BYPASSES, words["bypassed"]),
            drains=_by(layout.WAIT_REASONS, drains),
            errors=_by(layout.ERROR_CODES[1:], words["errors"][1:]),
            full_wait_ns=words["full_wait_ns"] + full_lasting,
            full_waiting=full_waiting,
            depth_histogram=values.Histogram.of(words["depth"], 1),
            run_ns=_by(layout.WORKS, map(values.Histogram.of, runs)),
        )

    def _failure(self, at: int) -> tuple[str, str]:
        """Return what made a stream fail, and the line that launched it."""
        place = at + layout.STREAM.at["failure"]
        for found in layout.FAILURE.steady(self._file.read, place, 1):
            if found["guard"] % 2 == 0:  # else it is being written
                return found["text"], self._site(found["site"])
        return "", ""

    def close(self) -> None:
        self._file.close()
