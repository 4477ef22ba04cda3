"""Record a timeline of running processes, from outside.

This asks each process to keep records of its tasks, copies them while it runs, and
writes one file. It imports no torch, and works on a process that hangs.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from npu_dispatch.config import for_child
from npu_dispatch.observe.segment import StatsError, StatsReader, segment_file
from npu_dispatch.observe.segment.collectives import LoggedCollective
from npu_dispatch.observe.trace import records
from npu_dispatch.observe.trace.chrome import chrome_json
from npu_dispatch.observe.trace.job import as_one_job, job_lines
from npu_dispatch.observe.trace.trace_file import (
    NoProcessError,
    TraceError,
    TraceFile,
)
from npu_dispatch.observe.trace.tracks import Counter, Host, Process

# A stream's ring holds 65536 records, so reading it this often loses none below a
# million tasks a second.
_POLL_S = 0.05
_MOST_OF_NAME = 200
# The log of collectives holds the last 1024 calls, so this loses none below 2000
# calls a second. It takes some milliseconds to read.
_CALLS_POLL_S = 0.5


@dataclass(eq=False)
class Recorder:
    """Follows one process; samples its memory counters and its log of collectives."""

    file: TraceFile
    stats: Path
    memory: dict[int, Counter] = field(default_factory=dict)
    command: str = ""
    rank: int | None = None
    calls: dict[int, LoggedCollective] = field(default_factory=dict)
    # Kept open: when the process ends, its segment loses its name at once.
    _reader: StatsReader | None = None
    _calls_at: float = 0.0

    def poll(self) -> None:
        self.file.read()
        try:
            if self._reader is None:
                self._reader = StatsReader(self.stats)
                command = self._reader.info.command
                self.command = " ".join(command)[:_MOST_OF_NAME]
            if self.stats.exists():
                self._sample_memory(self._reader)
            if time.monotonic() >= self._calls_at + _CALLS_POLL_S:
                self._read_calls()
        except (OSError, StatsError):
            return  # it has just ended

    def _read_calls(self) -> None:
        self._calls_at = time.monotonic()
        log = self._reader.collectives() if self._reader else None
        if log is None or not log.groups:
            return
        self.rank = log.groups[0].global_rank
        self.calls |= {call.number: call for call in log.calls}

    def close(self) -> None:
        self.file.close()
        if self._reader is not None:
            self._reader.close()

    def _sample_memory(self, reader: StatsReader) -> None:
        now = time.monotonic_ns()
        for device in reader.devices():
            if device.reserved:
                name = f"npu:{device.device} memory allocated"
                counter = self.memory.setdefault(device.device, Counter(name, "bytes"))
                counter.samples.append((now, device.allocated))

    def past(self, seconds: float) -> Process:
        """Return what was recorded of the last seconds."""
        self.poll()
        return self.process(time.monotonic_ns() - int(seconds * 1e9))

    def process(self, since_ns: int = 0) -> Process:
        """Return what was recorded and ended after `since_ns`."""
        pid, names = self.file.pid, self.file.names()
        streams, marks = [], []
        with suppress(OSError, StatsError):
            self._read_calls()
        calls = records.Calls(self.calls.values())
        for ring, found in self.file.all_rings():
            if ring.device < 0:
                marks += records.spans_of(self.file, found, names, since_ns)
                continue
            track = records.stream_track(self.file, ring, found, names, since_ns, calls)
            if track.slices:
                streams.append(track)
        return Process(
            pid,
            self.command or f"process {pid}",
            streams,
            list(self.memory.values()),
            records.to_lanes(marks, time.monotonic_ns()),
            self.rank,
            Host.this(),
        )


def of_process(
    pid: int, seconds: float, *, wait: Callable[[float], None] = time.sleep
) -> Process:
    """Return a timeline of `seconds` of a running process.

    A process that keeps records already (NPU_TRACE=1 when it was started) gives its
    past, as far as its records reach. Any other is recorded from now on.
    """
    return of_processes([pid], seconds, wait=wait)[0]


def open_files(pids: Sequence[int], stack: ExitStack) -> list[TraceFile]:
    """Return the trace files of running processes, which `stack` closes.

    Processes that have ended since they were listed are left out. Raises TraceError
    where all have.
    """
    files: list[TraceFile] = []
    ended: NoProcessError | None = None
    for pid in pids:
        try:
            files.append(stack.enter_context(TraceFile.of_process(pid)))
        except NoProcessError as error:
            ended = error
    if ended and not files:
        raise ended
    return files


def of_processes(
    pids: Sequence[int], seconds: float, *, wait: Callable[[float], None] = time.sleep
) -> list[Process]:
    """Return timelines of the same `seconds` of running processes, as of_process().

    Those that have ended are left out, as by open_files().
    """
    with ExitStack() as stack:
        recorders: list[Recorder] = []
        live: list[Recorder] = []
        for file in open_files(pids, stack):
            recorder = Recorder(file, segment_file(file.pid))
            recorders.append(stack.enter_context(closing(recorder)))
            if file.followed or not file.wanted:
                live.append(recorder)
                file.follow()
                stack.callback(file.leave)
        end = time.monotonic() + seconds
        while live and (left := end - time.monotonic()) > 0:
            wait(min(_POLL_S, left))
            for recorder in live:
                recorder.poll()
        return [r.process() if r in live else r.past(seconds) for r in recorders]


class NotRecordingError(RuntimeError):
    """No process keeps records."""


def of_past(pids: Sequence[int], seconds: float) -> list[Process]:
    """Return timelines of the last seconds, without a change in the processes.

    Processes that have ended, or have not been asked to keep records, are left out.
    Raises TraceError where all have ended, NotRecordingError where the others keep no
    records.
    """
    with ExitStack() as stack:
        files = open_files(pids, stack)
        kept = [file for file in files if file.wanted]
        if files and not kept:
            names = ", ".join(str(file.pid) for file in files)
            raise NotRecordingError(f"no records of tasks are kept by: {names}")
        recorders = [
            stack.enter_context(closing(Recorder(file, segment_file(file.pid))))
            for file in kept
        ]
        return [recorder.past(seconds) for recorder in recorders]


def of_command(command: Sequence[str]) -> tuple[int, list[Process]]:
    """Run a command; return its exit status and what its processes did on npu."""
    # In memory, where there is such a folder, since the rings are mapped.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="npu_trace-", dir=memory) as folder:
        child = subprocess.Popen(list(command), env=for_child(NPU_TRACE_DIR=folder))
        recorders: dict[Path, Recorder] = {}
        restore = signal.signal(signal.SIGINT, signal.SIG_IGN)  # that is for the child
        try:
            while child.returncode is None:  # which wait() sets
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_POLL_S)
                _poll_all(Path(folder), recorders)
        finally:
            signal.signal(signal.SIGINT, restore)
        processes = [recorder.process() for recorder in recorders.values()]
        for recorder in recorders.values():
            recorder.close()
    status = child.returncode
    return (status if status >= 0 else 128 - status), processes


def _poll_all(folder: Path, recorders: dict[Path, Recorder]) -> None:
    for path in sorted(folder.iterdir()):
        if path not in recorders:
            try:
                file = TraceFile(path)
                file.following = True
            except TraceError:
                continue  # it is still being made
            recorders[path] = Recorder(
                file, segment_file(int(path.name.partition("-")[0]))
            )
        recorders[path].poll()


def save(processes: list[Process], path: Path) -> Iterator[str]:
    """Write the file and yield lines that say what is in it.

    `.json` is Chrome's format, any other suffix Perfetto's. Ranks of a job are put
    on one clock.
    """
    processes, clocks = as_one_job(processes)
    if path.suffix == ".json":
        chrome_json(processes, path, clocks)
    else:
        # Its import takes 40 ms, which only those pay who write such a file.
        from npu_dispatch.observe.trace.perfetto_trace import perfetto

        perfetto(processes, path, clocks)
    for process in processes:
        for track in process.streams:
            lost = f", {track.lost} more were lost" if track.lost else ""
            yield f"{process.pid}: {track.name}: {len(track.slices)} tasks{lost}"
        for lane in process.lanes:
            yield f"{process.pid}: {lane.name}: {len(lane.spans)}"
    yield from job_lines(processes, clocks)
    yield f"wrote {path}"
