"""Programs on several ranks, joined by a file: no port to choose."""

import os
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interpreter import environment

HEAD = """
import os, sys
import torch
import torch.distributed as dist
from datetime import timedelta
rank, size = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)

def join(backend=None, seconds=60, **more):
    dist.init_process_group(backend, init_method="file://" + sys.argv[3],
        rank=rank, world_size=size, timeout=timedelta(seconds=seconds), **more)

def join_by_port(backend=None, seconds=60, **more):
    # For many groups and joins: who waits for a file polls it. The store ends with
    # rank 0, and the file says only where it is.
    met = dist.FileStore(sys.argv[3], size)
    store = rank == 0 and dist.TCPStore(
        "localhost", 0, size, is_master=True, wait_for_workers=False)
    if store: met.set("port", str(store.port))
    store = store or dist.TCPStore("localhost", int(met.get("port")), size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size,
        timeout=timedelta(seconds=seconds), **more)

def batch(step, *shape, of=rank):
    # What rank `of` is given in a step, the same on every device.
    seed = torch.Generator().manual_seed(size * step + of)
    return torch.randn(*shape, generator=seed)

joined = 0

def rejoin(*backend, **more):
    # Join a job of its own: what has failed in the one before is forgotten.
    global joined
    if joined:
        torch.npu.reset_device()
        dist.destroy_process_group()
    joined += 1
    sys.argv[3] += "again"
    join_by_port(*backend, **more)

def near(cpu, npu, by=1e-5, what=""):
    assert len(cpu) == len(npu), (what, cpu, npu)
    close = [abs(a - b) <= by * max(1, abs(a)) for a, b in zip(cpu, npu)]
    assert all(close), (what, cpu, npu)

def raises(kind, words, f, *args):
    # The exception of that kind, with these words, that a call raises.
    try:
        f(*args)
    except kind as error:
        assert words in str(error), error
        return error
    raise AssertionError(f"nothing was raised: {words}")

def failure(f, words=""):
    # What a call raises, or the wait for what it has launched.
    def waits():
        f()
        torch.npu.synchronize()
    return raises(dist.DistBackendError, words, waits)

def store():
    return dist.distributed_c10d._get_default_store()

def swap(mine, theirs, peer, group=None):
    # Send and receive in one batch; return its works.
    return dist.batch_isend_irecv([
        dist.P2POp(dist.isend, mine, peer, group),
        dist.P2POp(dist.irecv, theirs, peer, group)])

def waited(works):
    for work in works: work.wait()

def leave():
    # gloo's threads release tensors, for which they need the interpreter: a process
    # that ends before they have done so aborts. Destroyed, a group joins its threads.
    if dist.is_initialized() and "gloo" in str(dist.distributed_c10d._world.pg_map):
        dist.destroy_process_group()
        for name, value in list(globals().items()):
            if isinstance(value, dist.ProcessGroup): del globals()[name]

def fact(program):
    # One of several that share the ranks and their groups; a traceback names it.
    program()
    torch.npu.synchronize()
"""

# Set: programs run under the race sanitizer, which stops those that race.
if os.environ.get("NPU_TEST_SANITIZE_RANKS"):
    HEAD += "\ntorch.npu._sanitizer.enable_npu_sanitizer()\n"
# Put before a program. Which ranks have links is a matter of each rank's setting.
WITHOUT_LINKS = 'os.environ["NPU_DISPATCH_LINKS"] = "off"\n'
WAYS = {
    "links": "",
    "sockets": WITHOUT_LINKS,
    "both": f"if rank == size - 1: {WITHOUT_LINKS}",
}

Result = subprocess.CompletedProcess[str]


def make_ranks(python: Any, folder: Path) -> Callable[..., list[Result]]:
    """Return ranks(code, size=2): what each rank's program gave, by rank.

    Further names are variables of the environment.
    """
    runs = 0

    def ranks(code: str, size: int = 2, check: bool = True, **env: str) -> list[Result]:
        nonlocal runs
        runs += 1
        store = str(folder / f"store{runs}")
        program = HEAD + textwrap.dedent(code) + "\nleave()\n"
        started = [
            python.start(
                "-c", program, str(rank), str(size), store,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment(**env),
            )
            for rank in range(size)
        ]  # fmt: skip
        results = []
        for process in started:
            out, err = process.communicate(timeout=150)
            results.append(Result([], process.returncode, out, err))
        if check:
            for rank, result in enumerate(results):
                assert result.returncode == 0, f"rank {rank}:\n{result.stderr}"
        return results

    return ranks
