"""Everything of the product that leaves a file, each with how to read it again.

A writer is made once, in a process that uses the device, and then writes as often as
it is asked. Its check reads what it has written and says whether that is right.
"""

import io
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import torch

from npu_dispatch import _C
from npu_dispatch.npu import profiler
from npu_dispatch.observe.judge import flight_recorder
from npu_dispatch.observe.judge.describe import dead, postmortem_lines
from npu_dispatch.observe.segment import StatsReader, layout
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.trace import trace
from npu_dispatch.plan import html_page as page, record, spec


@dataclass(frozen=True)
class Writer:
    write: Callable[[], None]
    check: Callable[[], bool]


def _nothing() -> bool:
    return True


def snapshot(folder: Path) -> Writer:
    path = folder / "snapshot.pickle"
    x = torch.ones(64, device="npu")

    def check() -> bool:
        return bool(x.sum() == 64) and "segments" in pickle.loads(path.read_bytes())

    return Writer(lambda: torch.npu.memory._dump_snapshot(path), check)


def drawings(folder: Path) -> Writer:
    path = folder / "graph.dot"
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        torch.ones(4, device="npu").add_(1).mul_(2)

    def check() -> bool:
        return path.read_text().endswith("}\n")

    return Writer(lambda: graph.debug_dump(path), check)


def marks(folder: Path) -> Writer:
    path = folder / "marks.json"
    with profiler.profile():
        torch.npu.nvtx.mark("here")

    return Writer(
        lambda: profiler.export(path),
        lambda: bool(json.loads(path.read_text())["traceEvents"]),
    )


def timelines(folder: Path) -> Writer:
    """In both formats, and from the process's own trace file."""
    paths = [folder / "trace.json", folder / "trace.pftrace"]
    (torch.ones(8, device="npu") + 1).sum().item()

    def write() -> None:
        processes = trace.of_past([os.getpid()], 3600)
        for path in paths:
            list(trace.save(processes, path))

    def check() -> bool:
        return bool(json.loads(paths[0].read_text())["traceEvents"])

    return Writer(write, check)


def calls_of_ranks(folder: Path) -> Writer:
    dump = {"entries": [], "pg_config": {}, "rank": 3, "version": "2.9"}

    def write() -> None:
        flight_recorder.save(dump, str(folder / "rank_"))

    return Writer(write, lambda: flight_recorder.load(folder / "rank_3") == dump)


def operators(folder: Path) -> Writer:
    rules, path = folder / "rules.json", folder / "dumped" / "dump.jsonl"
    rules.write_text(json.dumps({"dump": {"dump_path": str(path.parent)}}))
    x = torch.ones(64, device="npu")

    def write() -> None:
        path.unlink(missing_ok=True)
        torch.npu.init_dump()
        try:
            torch.npu.set_dump(str(rules))
            for _ in range(100):  # more than is kept back in the program
                x.add(1)
        finally:
            torch.npu.finalize_dump()

    def check() -> bool:
        lines = path.read_text().splitlines()
        return len(lines) == 100 and all("op" in json.loads(x) for x in lines)

    return Writer(write, check)


def remains(folder: Path) -> Writer:
    """Set a dead process's segment aside, and tell from it what it was doing."""
    pid = (1 << 22) + os.getpid()  # larger than that of any process
    own = Path(_C.segment_path())
    left = own.with_name(str(pid))
    text = bytearray(own.read_bytes())
    at = layout.OFFSETS["SegmentHeader.pid"]
    text[at : at + 4] = pid.to_bytes(4, "little")

    def write() -> None:
        left.write_bytes(text)
        with Processes() as processes:
            processes.refresh()  # while its state cannot be read, it stays
            views = processes.refresh()
        assert pid not in [view.info.pid for view in views], "a dead process is listed"

    def check() -> bool:
        found = dead(pid)
        for path in found:
            with StatsReader(path) as reader:
                assert list(postmortem_lines(reader))
            path.unlink()
        return len(found) == 1

    return Writer(write, check)


def plans(folder: Path) -> Writer:
    script = folder / "step.py"
    script.write_text(
        "import torch\nx = torch.ones(64, device='npu')\n"
        "for _ in range(20):\n    x = torch.relu(x + 1)\n    x.sum().item()\n"
    )
    recorded = record.record([str(script)], [spec.load("a100-80gb-sxm")], steps=4)
    reports = [one.report for one in recorded]
    path = folder / "plan.html"

    return Writer(
        lambda: page.write(reports, path), lambda: "</html>" in path.read_text()
    )


def tensors(folder: Path) -> Writer:
    path = folder / "tensor.pt"
    x = torch.arange(4096.0).npu()

    def check() -> bool:
        return bool((torch.load(path).cpu() == torch.arange(4096.0)).all())

    return Writer(lambda: torch.save(x, path), check)


def shared_events(folder: Path) -> Writer:
    """An event for other processes, which has a file of its own."""
    del folder

    def write() -> None:
        event = torch.npu.Event(interprocess=True)
        event.record()
        event.ipc_handle()
        event.synchronize()

    return Writer(write, _nothing)


def shared_memory(folder: Path) -> Writer:
    """Send a tensor whose memory no process has been sent before, and receive it."""
    del folder
    sent: list[torch.Tensor] = []

    def write() -> None:
        sent.clear()
        torch.npu.synchronize()
        torch.npu.empty_cache()
        x = torch.zeros(3 << 20, device="npu")
        x[:2000] = 7  # pages of zeros are not written
        sent.append(x)
        buffer = io.BytesIO()
        ForkingPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(x)
        try:
            sent.append(pickle.loads(buffer.getvalue()))
        except RuntimeError:
            pickle.loads(buffer.getvalue())  # it stays until it has been received
            raise

    return Writer(write, lambda: all(x.sum().item() == 14000 for x in sent))


WRITERS: dict[str, Callable[[Path], Writer]] = {
    make.__name__: make
    for make in (
        snapshot,
        drawings,
        marks,
        timelines,
        calls_of_ranks,
        operators,
        remains,
        plans,
        tensors,
        shared_events,
        shared_memory,
    )
}
