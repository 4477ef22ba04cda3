"""Programs that are well, and programs that fall ill at a word, for alert rules.

Each program prints "ready" when it works. One of ILL is well until it reads a line:
a rise of a counter is seen only where there was a smaller value before it.
"""

from typing import NamedTuple

_HEAD = """
import os, sys, threading, time
import torch
npu = torch.npu
torch.set_num_threads(1)

def work(seconds, *tensors):
    # Keep the current stream busy, and no core.
    npu.current_stream().submit(lambda *_: time.sleep(seconds), *tensors, name="work")

def ready():
    print("ready", flush=True)

def told():
    ready()
    sys.stdin.readline()
"""

# A step is 50 ms of the device, launched ahead of it; gradients are averaged.
_RANK = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
dist.init_process_group("hccl", init_method="file://" + sys.argv[1],
                        rank=int(os.environ["RANK"]),
                        world_size=int(os.environ["WORLD_SIZE"]))
model = DistributedDataParallel(torch.nn.Sequential(
    torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).npu())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batch = torch.randn(32, 64)
for step in range(10**9):
    optimizer.zero_grad()
    loss = model(batch.npu()).square().mean()
    loss.backward()
    work(0.05, loss)
    optimizer.step()
    if step % 10 == 9:
        loss.item()
    if step == 20:
        ready()
"""

# The queue is full all the time, as the device is the limit.
_DEVICE_BOUND = """
x = torch.ones(64, device="npu")
ready()
while True:
    work(0.002, x)
    x.mul_(0.5)
"""

# A cell now and then, and nothing in between; its tensors stay.
_NOTEBOOK = """
torch.manual_seed(0)
kept = torch.randn(256, 256).npu()
for cell in range(10**9):
    for _ in range(20):
        kept = (kept @ kept).tanh()
    kept.sum().item()
    if cell == 0:
        ready()
    time.sleep(40)
"""

# A result a second, as a monitoring script does.
_SLOW_SCRIPT = """
x = torch.ones(1000, device="npu")
ready()
while True:
    x.sum().item()
    time.sleep(1)
"""

# Works in bursts, between which it reads its next file.
_FAST_SCRIPT = """
x = torch.ones(1000, device="npu")
ready()
while True:
    for _ in range(200):
        x.add_(1)
    npu.synchronize()
    time.sleep(0.5)
"""

# Each epoch has a worker process of its own, and batches of another size.
_TRAINER = """
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
rows = TensorDataset(torch.randn(4000, 32), torch.randn(4000, 1))
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(),
                            torch.nn.Dropout(0.1), torch.nn.Linear(64, 1)).npu()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(10**9):
    batches = DataLoader(rows, batch_size=30 + epoch % 7, shuffle=True, num_workers=1)
    for x, y in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.npu()), y.npu())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        work(0.05, loss)
    loss.item()
    if epoch == 0:
        ready()
"""

# Answers requests, each of which comes with a connection of its own.
_SERVER = """
import asyncio
from npu_dispatch import aio
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(),
                            torch.nn.Linear(64, 10)).npu().eval()

async def answer(reader, writer):
    rows = int(await reader.readline())
    with torch.inference_mode():
        classes = model(torch.rand(rows, 32).npu()).argmax(1)
    writer.write(repr((await aio.to_host(classes)).tolist()).encode())
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for request in range(10**9):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"%d\\n" % (1 + request % 50))
        assert len(eval(await reader.read())) == 1 + request % 50
        writer.close()
        await writer.wait_closed()
        if request == 100:
            ready()
        await asyncio.sleep(0.05)

asyncio.run(main())
"""


class Program(NamedTuple):
    code: str
    env: dict[str, str]


def _rank(rank: int, ranks: int, job: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "TORCHELASTIC_RUN_ID": job,
    }


WELL = {
    "rank 0": Program(_HEAD + _RANK, _rank(0, 2, "training")),
    "rank 1": Program(_HEAD + _RANK, _rank(1, 2, "training")),
    "trainer": Program(_HEAD + _TRAINER, {}),
    "server": Program(_HEAD + _SERVER, {}),
    "device-bound": Program(_HEAD + _DEVICE_BOUND, {}),
    "notebook": Program(_HEAD + _NOTEBOOK, {}),
    "slow script": Program(_HEAD + _SLOW_SCRIPT, {}),
    "fast script": Program(_HEAD + _FAST_SCRIPT, {}),
}


class Fault(NamedTuple):
    """Programs, and the alerts that are to fire for the last when they are told a word.

    Those that are `killed` are sent SIGKILL instead; where there is no program, an
    exporter is.
    """

    alerts: tuple[str, ...]
    programs: tuple[Program, ...]
    killed: bool


def _ill(
    alerts: str, *codes: str, killed: bool = False, job: str = "", **env: str
) -> Fault:
    programs = tuple(
        Program(_HEAD + code, env | (_rank(rank, len(codes), job) if job else {}))
        for rank, code in enumerate(codes)
    )
    return Fault(tuple(alerts.split()), programs, killed)


# A stream that waits for what never comes, behind which tasks are queued.
_HUNG = """
from npu_dispatch import _C
held, by = npu.Stream(), npu.Stream()
x = torch.ones(8, device="npu")
npu.synchronize()
told()
_C.stream_wait(held.device_index, held.stream_id, by.device_index, by.stream_id,
               _C.stream_tail(by.device_index, by.stream_id) + 1)
with npu.stream(held):
    x.add_(1)
held.synchronize()
"""

_POISONED = """
weight, index = torch.ones(4, 2).npu(), torch.tensor([9]).npu()
torch.nn.functional.embedding(index * 0, weight)
npu.synchronize()
told()
torch.nn.functional.embedding(index, weight)
try:
    npu.synchronize()
except IndexError:
    pass
time.sleep(10**6)
"""

# Two streams write one tensor and nothing orders them, every other second.
_RACING = """
s = npu.Stream()
def race(turn):
    # Each race has lines of its own: one that was reported is not reported again.
    exec(compile("x = torch.ones(8, device='npu')\\n"
                 "with npu.stream(s): x.add_(1)", f"turn {turn}", "exec"))
    npu.synchronize()
x = torch.ones(8, device="npu")
npu.synchronize()
told()
for turn in range(10**9):
    race(turn)
    time.sleep(2)
"""

_NEAR_OOM = """
x = torch.ones(8, device="npu")
told()
kept = torch.empty(124 << 20, dtype=torch.uint8, device="npu")
while True:
    x.add_(1)
    npu.synchronize()
    time.sleep(1)
"""

# Each result is read at once, so host and device take turns.
_BLOCKED = """
x = torch.ones(8, device="npu")
work(0.001, x)
x.sum().item()
told()
while True:
    work(0.01, x)
    x.sum().item()
    time.sleep(0.012)
"""

# The device has its task done before the next one comes.
_LAUNCH_BOUND = """
x = torch.ones(8, device="npu")
told()
while True:
    x.add_(1)
    end = time.monotonic() + 0.0007
    while time.monotonic() < end:
        time.sleep(0.0002)
"""

# Ranks that go on together, and the last is late each time.
_LATE = """
import torch.distributed as dist
dist.init_process_group("hccl", init_method=f"file://{sys.argv[1]}-{os.environ['TORCHELASTIC_RUN_ID']}",
                        rank=int(os.environ["RANK"]),
                        world_size=int(os.environ["WORLD_SIZE"]))
x = torch.ones(1000, device="npu")
dist.all_reduce(x)
npu.synchronize()
told()
for step in range(10**9):
    work(0.06 if dist.get_rank() == dist.get_world_size() - 1 else 0.005, x)
    dist.all_reduce(x)
    x.mul_(0.3)
    if step % 10 == 9:  # the host is ahead, or it would be blocked
        npu.synchronize()
"""

# Its loader never gives the next batch.
_STARVED = """
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, i):
        if i == 200:
            ready()
            sys.stdin.readline()
            time.sleep(10**6)
        return torch.ones(8)
model = torch.nn.Linear(8, 1).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for batch in DataLoader(Data(), batch_size=4):
    optimizer.zero_grad()
    model(batch.npu()).sum().backward()
    optimizer.step()
"""

# Works, and ends by itself.
_ENDS = """
x = torch.ones(8, device="npu")
npu.synchronize()
told()
x.add_(1)
npu.synchronize()
"""

_GUARDED = """
x = torch.ones(8, device="npu")
x.sum().item()
told()
npu.set_sync_debug_mode("error")
while True:
    try:
        x.sum().item()
    except RuntimeError:
        time.sleep(2)
"""

# A freed tensor which a stream that stands still may read.
_DEFERRED = """
x = torch.ones(8, device="npu")
s = npu.Stream()
told()
x.sum().item()
while True:
    big = torch.empty(40 << 20, dtype=torch.uint8, device="npu")
    with npu.stream(s):
        work(4.0, big)
    big.record_stream(s)
    del big
    s.synchronize()
"""

# Somebody follows its trace, and then reads no more of it.
_TRACED = """
from npu_dispatch.observe.trace.trace_file import TraceFile, trace_path
x = torch.ones(8, device="npu")
npu.synchronize()
told()
with TraceFile(trace_path(os.getpid())) as trace:
    trace.read()
    trace.wanted = trace.following = True
    while True:
        for _ in range(2000):
            x.add_(1)
        npu.synchronize()
        if x[0] < 10_000:
            trace.read()
        time.sleep(1)
"""

# Counters that no reader understands lie beside its own.
_GARBLED = """
from npu_dispatch.observe.segment import segment_file
x = torch.ones(8, device="npu")
told()
segment_file(os.getppid()).write_bytes(b"garbled" * 1000)
while True:
    x.add_(1)
    npu.synchronize()
    time.sleep(1)
"""

_WORKING = """
x = torch.ones(8, device="npu")
ready()
while True:
    work(0.01, x)
    x.add_(1)
    time.sleep(0.011)
"""

ILL = {
    "killed": _ill("NpuProcessKilled", _WORKING, killed=True),
    "hung": _ill("NpuProcessHung", _HUNG),
    "poisoned": _ill("NpuStreamPoisoned NpuAsyncError", _POISONED),
    "ends well": _ill("", _ENDS),
    "starved": _ill("NpuTrainerQuiet", _STARVED),
    "straggler": _ill("NpuRankStraggler", _LATE, _LATE, _LATE, job="late"),
    "straggler of two": _ill("NpuRankStraggler", _LATE, _LATE, job="pair"),
    "dead exporter": _ill("NpuTargetDown", killed=True),
    "racing": _ill("NpuDataRace", _RACING, TORCH_NPU_SANITIZER="report"),
    "near OOM": _ill("NpuNearOOM", _NEAR_OOM, NPU_DISPATCH_MEMORY="128M"),
    "blocked": _ill("NpuHostBlocked", _BLOCKED),
    "launch-bound": _ill("NpuLaunchBound", _LAUNCH_BOUND),
    "guarded": _ill("NpuSyncInGuardedRegion", _GUARDED),
    "traced": _ill("NpuTraceDrop", _TRACED),
    "garbled": _ill("NpuSegmentsUnreadable", _GARBLED),
    "deferred": _ill("NpuDeferredFree", _DEFERRED, NPU_DISPATCH_MEMORY="128M"),
}
