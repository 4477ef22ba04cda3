"""Gives the readers of other processes' files what no process would write.

`python -m tests.torture.damaged_files --seconds 20`; prints JSON. A reader may
refuse a file, in its own words; it may not end in any other error, nor hang, nor
take memory without bounds.
"""

import contextlib
import faulthandler
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from npu_dispatch.observe.judge import flight_recorder, rank_verdict
from npu_dispatch.observe.judge.describe import dump_lines, postmortem_lines
from npu_dispatch.observe.segment import StatsError, StatsReader
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.trace.trace_file import TraceError, TraceFile
from tests.torture import part

LIMIT_S, LIMIT_BYTES = 30, 4 << 30
WORDS = (0, 1, 2, 7, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32)
WORDS += ((1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1)

# A process that has used what can be read, and is then killed.
WRITER = """
import os, signal, sys, torch, torch.distributed as dist
dist.init_process_group("hccl", init_method="file://" + sys.argv[1], rank=0,
                        world_size=1)
x = torch.ones(64, device="npu")
side = torch.npu.Stream()
for i in range(40):
    x = (x + 1).relu()
    with torch.npu.stream(side):
        side.wait_stream(torch.npu.default_stream())
        y = x * 2
    dist.all_reduce(x)
x.sum().item()
from npu_dispatch import _C
from npu_dispatch.observe.judge import flight_recorder
from npu_dispatch.observe.segment import StatsReader
from pathlib import Path
with StatsReader(Path(_C.segment_path())) as reader:
    flight_recorder.save(flight_recorder.dump_of(reader), sys.argv[2])
print(_C.segment_path(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def read_segment(path: Path) -> None:
    """Read all there is to a segment; StatsError where it is refused."""
    with StatsReader(path) as reader:
        reader.process(), reader.devices(), reader.streams(), reader.ops()
        for stream in reader.streams():
            reader.recent(stream.device, stream.stream)
            reader.exemplars(stream.device, stream.stream, "latency")
            reader.exemplars(stream.device, stream.stream, "queued")
        reader.open_waits(), reader.waits_by_site()
        if dump := flight_recorder.dump_of(reader):
            rank_verdict.report([dump])
        list(postmortem_lines(reader))


def watch_segment(path: Path) -> None:
    """Watch it, among others, as the service and `top` do."""
    folder = path.parent / "watched"
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(StatsError), StatsReader(path) as reader:
        watched = folder / str(reader.info.pid)
        watched.write_bytes(path.read_bytes())
        with Processes(directory=folder) as processes:
            for _ in range(2):
                for view in processes.refresh():
                    list(dump_lines(view))
    for left in folder.iterdir():
        left.unlink()


def read_trace(path: Path) -> None:
    with TraceFile(path) as trace:
        trace.read()
        trace.names()
        for _, records in trace.all_rings():
            trace.to_ns(records["ended"])


def read_dump(path: Path) -> None:
    dumps = flight_recorder.from_files([path])
    rank_verdict.report(dumps)


READERS: dict[str, tuple[Callable[[Path], None], type[Exception]]] = {
    "segment": (read_segment, StatsError),
    "watched": (watch_segment, StatsError),
    "trace": (read_trace, TraceError),
    "dump": (read_dump, ValueError),
}


def samples(folder: Path) -> dict[str, bytes]:
    """Return a file of each kind, as a process that was killed has left it."""
    code = [sys.executable, "-c", WRITER, str(folder / "store"), str(folder / "rank")]
    env = {**os.environ, "NPU_TRACE_DIR": str(folder / "traces")}
    (folder / "traces").mkdir()
    out = subprocess.run(code, env=env, capture_output=True, text=True, check=False)
    assert out.stdout, out.stderr
    segment = Path(out.stdout.strip())
    [trace] = (folder / "traces").iterdir()
    with trace.open("rb") as file:
        beginning = file.read((1 << 18) + (3 << 22) + 8192)
    found = {"segment": segment.read_bytes(), "trace": beginning}
    segment.unlink(missing_ok=True)
    trace.unlink()
    found["watched"] = found["segment"]
    found["dump"] = (folder / "rank0").read_bytes()
    return found


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return it with a few words, bytes or its end changed."""
    changed = bytearray(data)
    used = range(0, min(len(data), 1 << 16), 8)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        what = rng.random()
        at = rng.choice(
            (rng.choice(used), rng.randrange(len(changed)), rng.randrange(256))
        )
        at = min(at, len(changed) - 1)
        if what < 0.5:
            size, form = rng.choice(((8, "<Q"), (4, "<I")))
            at -= at % size
            value = rng.choice((*WORDS, rng.getrandbits(64))) % (1 << 8 * size)
            changed[at : at + size] = struct.pack(form, value)[: len(changed) - at]
        elif what < 0.9:
            changed[at] = rng.randrange(256)
        elif what < 0.95:
            del changed[at:]
        else:
            changed[at:at] = changed[at : at + rng.randrange(64)]
    return bytes(changed)


def shuffled(data: bytes, rng: random.Random) -> bytes:
    """Return a dump of which some value is of another type, or missing."""
    dump = pickle.loads(data)
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            places.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    walk(dump)
    for _ in range(rng.choice((1, 1, 3))):
        holder, key = rng.choice(places)
        with contextlib.suppress(KeyError, IndexError):
            if rng.random() < 0.3:
                del holder[key]
            else:
                holder[key] = rng.choice(
                    (None, -1, 1 << 70, "", "x", [], {}, [[]], 1.5)
                )
    return pickle.dumps(dump)


def write(kind: str, path: Path, data: bytes) -> None:
    path.write_bytes(data)
    if kind == "trace" and len(data) > 1 << 20:
        os.truncate(path, 300 << 20)  # rings that nobody used are holes


def read(kind: str, path: Path) -> str:
    """Read a file; return "" or what should not have come of it, and at which line."""
    reader, refusal = READERS[kind]
    try:
        reader(path)
    except refusal:
        pass
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{frame.filename}:{frame.lineno}"
        return f"{type(error).__name__}: {str(error)[:100]} at {at}"
    return ""


def attempt(kind: str, path: Path, data: bytes) -> str:
    """Give it to the reader; return "" or what should not have come of it."""
    write(kind, path, data)
    began = time.monotonic()
    wrong = read(kind, path)
    took = time.monotonic() - began
    return wrong or (f"took {took:.0f} s" if took > LIMIT_S / 3 else "")


def campaign(seconds: float, seed: int) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    rng = random.Random(seed)
    told: dict[str, Any] = {"seed": seed, "inputs": {}, "bad": []}
    known: set[tuple[str, str]] = set()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        originals = samples(folder)
        for kind, data in originals.items():
            wrong = attempt(kind, folder / "9", data)
            assert not wrong, wrong
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            kind = rng.choice(sorted(READERS))
            data = originals[kind]
            if kind == "dump" and rng.random() < 0.7:
                changed = shuffled(data, rng)
            else:
                changed = mutated(data, rng)
            told["inputs"][kind] = told["inputs"].get(kind, 0) + 1
            faulthandler.dump_traceback_later(LIMIT_S, exit=True)
            wrong = attempt(kind, folder / "9", changed)
            faulthandler.cancel_dump_traceback_later()
            key = kind, wrong.rpartition(" at ")[2]
            if wrong and key not in known:
                known.add(key)
                told["bad"].append(f"{kind}: {wrong}")
    return told


if __name__ == "__main__":
    part.main(__doc__, lambda asked: campaign(asked.seconds, asked.seed), seconds=20)
