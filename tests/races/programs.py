"""Small programs, right and wrong: two accesses, and what orders them or does not.

A program of a table makes tensors, does the first access on a side stream, the second
one on another, and something in between that orders them or not. Programs that have
another form are functions.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

import torch
from counted_replays import Counted

npu = torch.npu
FILE = "program.py"
FORM = """\
import asyncio, copy, io, pickle
import numpy as np, torch.nn.functional as F
here, side, third = npu.current_stream(), npu.Stream(), npu.Stream()
{made}
npu.synchronize()
early, opened, later = side.record_event(), npu.ExternalEvent(), npu.ExternalEvent()
opened.record(side)
with npu.stream(side):
    {first}  # first
{order}
with npu.stream(here):
    {second}  # second
npu.synchronize()
"""
# What a call is called in a report; the first part that is found decides. A copy to the
# host is one where the host reaches the device's memory, else a task of the driver's.
CALLED = {
    "_foreach_add_": "aten::_foreach_add_.Scalar",
    "out=out": "aten::add.out",
    "out=y": "aten::cat.out",
    "torch.cat": "aten::cat",
    "torch.equal": "aten::equal",
    "batch_norm_update_stats": "aten::batch_norm_update_stats",
    "F.batch_norm": "aten::native_batch_norm",
    "cube(": "jiterator::cube",
    ".cpu()": "aten::copy_ memcpy",
    "copy_(": "memcpy",
    "submit(add_one": "add_one",
    "submit(read": "read",
    "fill_(p)": "aten::fill_.Tensor",
    "fill_(": "aten::fill_.Scalar",
    "zero_(": "aten::zero_",
    "z = zeros": "aten::zero_",
    "add_(": "aten::add_.Tensor",
    "mul_(": "aten::mul_.Tensor aten::mul_.Scalar",
    " + 1": "aten::add.Tensor",
    " * ": "aten::mul.Tensor",
    ".item()": "aten::_local_scalar_dense",
    "nonzero": "aten::nonzero",
    ".sum()": "aten::sum.dim_IntList",
    ".max()": "aten::max",
    ".clone()": "aten::copy_",
    "numpy": "numpy",
    "tolist": "tolist",
    "torch.save": "save",
    "pickle": "save",
    "from_dlpack": "from_dlpack",
    "apply_": "apply_",
    "map_": "map_",
    "del x": "free",
}


@dataclass(frozen=True)
class Program:
    """Its finding is of this kind, "" for none; an access may name its operator."""

    kind: str
    made: str
    first: str
    second: str
    order: str = ""

    @property
    def text(self) -> str:
        first, second = (a.partition(" => ")[0] for a in (self.first, self.second))
        return FORM.format(made=self.made, first=first, second=second, order=self.order)

    def line(self, side: str) -> int:
        lines = self.text.splitlines()
        return 1 + next(n for n, line in enumerate(lines) if line.endswith(f"# {side}"))

    def called(self, side: str) -> list[str]:
        """Return what the operator of an access may be called."""
        access, _, op = getattr(self, side).partition(" => ")
        found = op or next(op for call, op in CALLED.items() if call in access)
        return found.split()

    def in_order(self) -> Program | None:
        """Return the program with a wait that makes it right, where one can."""
        if self.order or self.kind in ("", "overwritten-result", "use-after-free"):
            return None
        host = self.kind.startswith("host-")
        wait = "side.synchronize()" if host else "here.wait_stream(side)"
        return Program("", self.made, self.first, self.second, wait)


def accesses(text: str, made: str = "") -> list[Program]:
    """Read `kind | what is made | first | second`, or without what is made."""
    found = []
    for line in text.strip().splitlines():
        kind, *own, first, second = (cell.strip() for cell in line.split("|"))
        found.append(Program(kind, "".join(own) or made, first, second))
    with_order = [p.in_order() for p in found]
    return found + [p for p in with_order if p]


def orders(kind: str, made: str, first: str, second: str, text: str) -> list[Program]:
    """Read lines `racy | what comes between` and `right | what comes between`."""
    cells = [line.partition("|") for line in text.strip().splitlines()]
    return [
        Program(kind if of.strip() == "racy" else "", made, first, second, order[1:])
        for of, _, order in cells
    ]


STREAMS = orders(
    "read/write",
    "x = ones(100)",
    "x.add_(1)",
    "x + 1",
    """
racy | here.wait_event(early)
racy | third.wait_event(side.record_event())
racy | side.wait_stream(here)
racy | here.wait_event(npu.Event())
racy | seen = third.record_event(); third.wait_stream(side); here.wait_event(seen)
racy | here.synchronize()
racy | third.synchronize()
racy | early.synchronize()
racy | asyncio.run(until(early))
racy | opened.wait(here)
racy | later.wait(here); later.record(third)
right | here.wait_stream(side)
right | here.wait_event(side.record_event())
right | early.record(side); here.wait_event(early)
right | third.wait_stream(side); here.wait_stream(third)
right | third.wait_stream(side); third.synchronize()
right | npu.SyncLaunchStream().wait_stream(side)
right | unseen(side); npu.SyncLaunchStream().wait_stream(side)
right | side.synchronize()
right | npu.synchronize()
right | side.record_event().synchronize()
right | polled(side)
right | polled(side.record_event())
right | asyncio.run(until(side))
right | asyncio.run(until(side.record_event()))
right | later.record(side); later.wait(here)
right | opened.wait(here); later.record(side); later.wait(here)
right | shared = npu.Event(interprocess=True); shared.record(side); shared.synchronize()
right | shared = npu.Event(interprocess=True); shared.record(side); shared.wait(here)
""",
)
ACCESSES = accesses("""
read/write  | x = ones(100) | x.add_(1) | x + 1
write/write | x = ones(100) | x.add_(1) | x.zero_()
read/write  | x = ones(100) | y = x + 1 | x.zero_()
            | x = ones(100) | y = x + 1 | z = x + 1
read/write  | x = ones(100); gate = npu.ExternalEvent(); gate.wait(side); gate.record(third) | x.add_(1) | x + 1
read/write  | x = ones(1) | x.add_(1) | x.item()
read/write  | x = ones(100) | x.add_(1) | x.cpu()
read/write  | x = ones(100) | y = x + 1 | x.copy_(torch.zeros(100))
read/write  | x = ones(100) | x.add_(1) | x.nonzero()
read/write  | x, y = ones(100), ones(100) | y.add_(1) | torch.equal(x, y)
write/write | x, out = ones(100), ones(100) | torch.add(x, 1, out=out) | out.fill_(0)
write/write | x = ones(100); here = npu.SyncLaunchStream() | x.add_(1) | x.add_(1)
read/write  | x, mean, var = stats() | F.batch_norm(x, mean, var, None, None, True) | mean + 1
read/write  | x, mean, var = stats() | var + 1 | torch.batch_norm_update_stats(x, mean, var, 0.1)
            | x, mean, var = stats() | F.batch_norm(x, mean, var) | F.batch_norm(x, mean, var)
read/write  | x, cube = ones(1000), compiled() | x.mul_(2) | cube(x)
read/write  | x, cube = ones(1000), compiled() | y = cube(x) | y.sum()
            | x, cube = ones(64, 8), compiled() | x[:, 0::2].mul_(2) | cube(x[:, 1::2]); cube(x[:, 1:2].expand(64, 100))
""")  # noqa: E501
VIEWS = accesses("""
            | x = ones(100) | x[:50].fill_(1) | x[50:].fill_(2)
write/write | x = ones(100) | x[:51].fill_(1) | x[50:].fill_(2)
            | x = ones(64, 8) | x[:, 0::2].fill_(1) | x[:, 1::2].fill_(2)
write/write | x = ones(64, 8) | x[:, 0::2].fill_(1) | x[:, 2:4].fill_(2)
            | x = ones(64, 8) | x[:, 3].fill_(1) | y = x[:, 4] + 1
            | x = ones(64, 8) | x[5].fill_(1) | y = x[6:, 4] + 1
read/write  | x = ones(64, 8) | x[5].fill_(1) | x[:, 4] + 1
            | x = ones(16, 16) | x.t()[3].fill_(1) | y = x[:, 4] + 1
read/write  | x = ones(16, 16) | x.t()[3].fill_(1) | x[:, 3] + 1
            | x = ones(64) | x.as_strided((10,), (6,), 0).fill_(1) | x.as_strided((15,), (4,), 1).fill_(2)
write/write | x = ones(64) | x.as_strided((10,), (6,), 1).fill_(1) | x.as_strided((11,), (5,), 3).fill_(2)
            | x = ones(32, 32) | x[:16, :16].fill_(1); x[16:, 16:].fill_(1) | x[:16, 16:].fill_(2); x[16:, :16].fill_(2)
write/write | x = ones(32, 32) | x[:16, :17].fill_(1) | x[:16, 16:].fill_(2)
            | x = ones(8, 1) | y = x[:4].expand(4, 8) + 1 | x[4:].fill_(1)
read/write  | x = ones(8, 1) | y = x.expand(8, 8) + 1 | x[7].fill_(1)
            | x = ones(64) | x[10:12].fill_(1) | x.view(torch.int16)[24].fill_(2)
write/write | x = ones(64) | x[10:12].fill_(1) | x.view(torch.int16)[23].fill_(2)
            | x = torch.view_as_real(ones(16) + 0j) | x[:, 0].fill_(1) | x[:, 1].fill_(2)
write/write | x = ones(16) + 0j | torch.view_as_real(x)[:, 0].fill_(1) | x.fill_(1)
read/write  | x = ones(40, 16) | [row.fill_(1) for row in x] | x[17] + 1
read/write  | x, y = ones(8), ones(8) | y.fill_(1) | torch.cat([x, y])
write/write | x, y = ones(8), ones(8) | torch._foreach_add_([x, y], 1) | y.fill_(1)
            | x = ones(8) | x.fill_(1) | x[4:4].fill_(1)
            | x = ones(2**14) | qubits(x, 0, 0, 0, 0, 0, 0, 0).fill_(1) | qubits(x, 0, 0, 0, 0, 0, 0, 1).fill_(2); qubits(x, 1).fill_(2)
read/write  | x = ones(2**14) | qubits(x, 0, 0, 0, 0, 0, 0, 0).fill_(1) | x + 1
write/write | x = ones(2**14) | qubits(x, 0, 0, 0, 0, 0, 0, 0).fill_(1) | qubits(x, 0, 0, 0, 0, 0, 0).fill_(2)
read/write  | x, y = ones(1), ones(8) | y.fill_(1) | torch.cat([x] * 66_000 + [y])
write/write | x, y = ones(1), ones(66_000) | y.fill_(1) | torch.cat([x] * 66_000, out=y)
""")  # noqa: E501
# Large enough not to travel inside the task.
BUFFER = "p, x = pinned(20_000), ones(20_000)"
SCALAR = "p, one, x = torch.zeros((), pin_memory=True), ones(()), ones(9)"
HOST = [
    *orders(
        "host-read",
        BUFFER,
        "p.copy_(x, non_blocking=True)",
        "p.sum()",
        """
racy | early.synchronize()
racy | here.synchronize()
right | side.record_event().synchronize()
right | npu.synchronize()
""",
    ),
    *accesses(
        """
host-read   | p.copy_(x, non_blocking=True) | p.sum()
host-write  | x.copy_(p, non_blocking=True) | p.fill_(1)
            | x.copy_(p, non_blocking=True) | p.sum()
host-write  | p.copy_(x, non_blocking=True) | p.zero_()
host-read   | p.copy_(x, non_blocking=True) | p.numpy()
host-read   | p.copy_(x, non_blocking=True) | p[:3].tolist()
host-read   | p.copy_(x, non_blocking=True) | p[7].item()
host-read   | p[9:].copy_(x[9:], non_blocking=True) | p[8:10].sum()
            | p[9:].copy_(x[9:], non_blocking=True) | p[:9].sum()
host-read   | v = p.view(100, -1); p.copy_(x, non_blocking=True) | v.t()[0].clone()
            | p.copy_(x, non_blocking=True) | p.view(100, -1).t()[0].detach()
host-read   | p.copy_(x.mul(2), non_blocking=True) | p.max()
write/write | p.copy_(x, non_blocking=True) | p.copy_(x, non_blocking=True)
host-read   | p.copy_(x, non_blocking=True) | torch.save(p, io.BytesIO())
host-read   | p.copy_(x, non_blocking=True) | pickle.dumps(p)
            | p.copy_(x, non_blocking=True) | copy.copy(p)
host-read   | p.copy_(x, non_blocking=True) | np.from_dlpack(p)
host-write  | p.copy_(x, non_blocking=True) | p.apply_(abs)
host-read   | p.copy_(x, non_blocking=True) | torch.zeros(20_000).map_(p, max)
            | x.copy_(p) | p.fill_(1)
            | p.copy_(x) | p.sum()
            | x.copy_(p, non_blocking=True); del p | pinned(20_000).fill_(3)
""",
        BUFFER,
    ),
    *accesses(
        """
host-read | p.copy_(one, non_blocking=True) | x * p
host-read | p.copy_(one, non_blocking=True) | x.fill_(p)
          | p.copy_(one, non_blocking=True); x[0].copy_(p, non_blocking=True) | pass
| p.copy_(one, non_blocking=True); torch._foreach_copy_([one], [p], True) | pass
""",
        SCALAR,
    ),
]
SUBMITTED = accesses("""
host-read  | p = pinned(100) | side.submit(add_one, p) | p.sum()
host-read  | p, q = pinned(100), pinned(100) | side.submit(add_one, p, q) | q.sum()
host-write | p = pinned(100) | side.submit(read, p, writes=[]) | p.fill_(1)
           | p = pinned(100) | side.submit(read, p, writes=[]) | p.sum()
host-read  | p = torch.zeros(100) | side.submit(add_one, p) | p.sum()
unordered-foreign-launch | p = pinned(100) | side.submit(add_one, p) | here.submit(add_one, p)
unordered-foreign-launch | p = torch.zeros(100) | side.submit(add_one, p[:51]) | here.submit(add_one, p[50:])
                         | p = torch.zeros(100) | side.submit(add_one, p[:50]) | here.submit(add_one, p[50:])
                         | pass | [(side.submit(add_one, torch.zeros(100)), torch.zeros(100).sum()) for _ in range(20)]; side.synchronize() | [torch.zeros(100).sum() for _ in range(20)]
""")  # noqa: E501
# The stream that has made the memory is the first one, which is the default stream.
FROM_THERE = "here, side = side, here; x = ones(1000)"
MEMORY = [
    *orders(
        "allocator-reuse",
        "x = ones(1000)",
        "y = x * 2",
        "z = zeros(1000)",
        """
racy | del x
racy | x.record_stream(third); del x
racy | x.resize_(5000)
right | x.record_stream(side); del x
right | x.record_stream(side); del x; unseen(side)
right | here.wait_stream(side); del x
right | del x; here.wait_stream(side)
""",
    ),
    Program(
        "allocator-reuse", "x = ones(1000)", "x.add_(1)", "z = zeros(1000)", "del x"
    ),
    *orders(
        "allocator-reuse",
        "here, side = side, here\nwith npu.stream(here): x = ones(1000)",
        "y = x * 2",
        "z = zeros(1000)",
        """
racy | del x
right | x.record_stream(side); del x
""",
    ),
    *orders(
        "allocator-reuse",
        FROM_THERE,
        "x.mul_(2)",
        "y.fill_(1)",
        """
racy | del x; y = torch.empty(1000, device="npu")
right | del x; y = torch.empty(1000, device="npu"); here.wait_stream(side)
""",
    ),
    *accesses("""
use-after-free | x = ones(1000); y = alias(x) | del x | y.fill_(1)
               | x = ones(1000); y = alias(x) | pass | y.fill_(1)
               | pass | x = ones(1000); y = x * 2; del x; z = zeros(1000) | pass
"""),
]
GATED = "gate = npu.ExternalEvent(); graph, x, y = tripling(gate)"
POOL = "side = here; one, two, three, y, z, x = of_one_pool(); two.replay()"
GRAPHS = [
    *accesses("""
read/write | graph, x, y = doubling() | graph.replay() => aten::add.Tensor | x.fill_(1)
read/write | graph, x, y = doubling() | graph.replay() => aten::mul.Tensor | y + 1
read/write | graph, x, y = doubling() | x.fill_(1) | graph.replay() => aten::add.Tensor
use-after-free | graph, x, y = doubling() | del x | graph.replay() => aten::add.Tensor
| graph, x, y = doubling() | pass | [(x.add_(1), graph.replay()) for _ in range(3)]
"""),
    *accesses(
        """
           | x.fill_(2); gate.record() | graph.replay()
           | graph.replay() | x.fill_(2); gate.record()
read/write | gate.record(); x.fill_(2) | graph.replay() => aten::mul.Tensor
""",
        GATED,
    ),
    *accesses(
        """
overwritten-result|one.replay() => aten::mul.Tensor | z.sum()
overwritten-result|one.replay() => aten::mul.Tensor | z.cpu()
overwritten-result|one.replay() => aten::mul.Tensor | three.replay() => aten::sub.Tensor
""",
        POOL,
    ),
]
TABLES = {
    "streams": STREAMS,
    "accesses": ACCESSES,
    "views": VIEWS,
    "host": HOST,
    "submitted": SUBMITTED,
    "memory": MEMORY,
    "graphs": GRAPHS,
}


# What the programs call.


# No functions of ours, so that what they launch is of the program's line.
ones = functools.partial(torch.ones, device="npu")
zeros = functools.partial(torch.zeros, device="npu")


def pinned(size: int) -> torch.Tensor:
    return torch.zeros(size).pin_memory()


def stats() -> tuple[torch.Tensor, ...]:
    return torch.rand(8, 4, device="npu"), torch.zeros(4).npu(), torch.ones(4).npu()


@functools.cache
def compiled() -> Any:
    cube = npu.jiterator._create_jit_fn(
        "template <typename T> T cube(T x) { return x * x * x; }"
    )
    cube(ones(1))
    return cube


def polled(done: Any) -> None:
    while not done.query():
        pass


def unseen(stream: Any) -> None:
    """Wait for the stream without the device's knowledge."""
    over = threading.Event()
    stream.submit(over.set)
    over.wait()


async def until(done: Any) -> None:
    await done


def add_one(*tensors: torch.Tensor) -> None:
    for t in tensors:
        t.add_(1)


def read(t: torch.Tensor) -> None:
    t.sum()


def qubits(x: torch.Tensor, *fixed: int) -> torch.Tensor:
    """Return the elements of x with these indices, one per second qubit."""
    return x.view([2] * 14)[tuple(i for q in fixed for i in (slice(None), q))]


def alias(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor over the same memory that does not keep it."""
    storage = torch._C._construct_storage_from_data_pointer(
        x.data_ptr(), x.device, x.untyped_storage().nbytes()
    )
    return torch.empty(0, device=x.device).set_(storage).view(x.dtype)


def doubling() -> tuple[Any, ...]:
    """Return a graph, its input and its output."""
    x = zeros(100)
    graph = npu.NPUGraph()
    with npu.graph(graph, check_input_liveness=False):
        half = x + 0
        y = half * 2
        del half
    return graph, x, y


def tripling(gate: Any) -> tuple[Any, ...]:
    """Return a graph that waits for the event, its input and its output."""
    x = ones(100)
    graph = npu.NPUGraph()
    with npu.graph(graph):
        gate.wait()
        y = x * 3
    return graph, x, y


def of_one_pool() -> tuple[Any, ...]:
    """Return three graphs, the results of the first two, and their input.

    The second one's result lies where the first one computes; the third one reads both.
    """
    x = ones(1000)
    one, two, three = (npu.NPUGraph() for _ in range(3))
    with npu.graph(one):
        y = x * 2 + 1
    with npu.graph(two, pool=one.pool()):
        z = x / 3
    with npu.graph(three, pool=one.pool()):
        three.total = z - y
    return one, two, three, y, z, x


# Programs of another form, all of them right.


def right_launches_block() -> None:
    s = npu.Stream()
    with npu.launch_blocking():
        x = ones(100)
        with npu.stream(s):
            x.add_(1)


def right_the_event_is_recorded_behind_another_access() -> object:
    s, done = npu.Stream(), npu.ExternalEvent()
    x = ones(100)
    npu.synchronize()
    done.wait(s)
    with npu.stream(s):
        y = x + 1
    x.add_(1)
    done.record()
    return y


def right_streams_of_one_capture() -> object:
    x, s = zeros(100), npu.Stream()
    graph = npu.NPUGraph()
    with npu.graph(graph):
        s.wait_stream(npu.current_stream())
        with npu.stream(s):
            y = x + 1
        npu.current_stream().wait_stream(s)
        z = y * 2
    for _ in range(3):
        x.add_(1)
        graph.replay()
    z.sum()
    return graph, y


def right_a_replay_records_an_event() -> object:
    s, done, x = npu.Stream(), npu.ExternalEvent(), ones(100)
    graph = npu.NPUGraph()
    with npu.graph(graph):
        y = x * 3
        done.record()
    npu.synchronize()
    graph.replay()
    done.wait(s)
    with npu.stream(s):
        z = y + 1
    npu.synchronize()
    return graph, z


def right_graphs_of_one_pool_in_the_order_of_their_captures() -> object:
    one, two, three, y, z, x = of_one_pool()
    for _ in range(3):
        x.add_(1)
        one.replay()
        two.replay()
        z.sum()
        three.replay()
        (z + three.total + y).cpu()
    return one, two, three, x


def right_an_overwritten_result_is_written_before_it_is_read() -> object:
    one, two, three, y, z, x = of_one_pool()
    two.replay()
    one.replay()
    z.zero_()
    z.sum()
    one.replay()
    two.replay()
    z.sum()
    one.replay()
    del z
    return one, two, three, y, x, ones(1000).sum()


def right_graphed_callables_add_up_gradients() -> object:
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8)
    ).npu()
    between = torch.zeros(4, 16, device="npu", requires_grad=True)
    samples = (torch.zeros(4, 8, device="npu"),), (between,)
    parts = (torch.nn.Sequential(model[0], model[1]), model[2])
    first, second = npu.make_graphed_callables(parts, samples)
    for _ in range(3):
        for _ in range(2):
            second(first(ones(4, 8))).square().sum().backward()
        for p in model.parameters():
            p.grad.sum()
            p.grad = None
    return model, parts, samples


def right_functions_that_share_the_memory_of_their_replays() -> object:
    one = Counted(lambda x: (x @ x).sin() @ (x + 1))
    two = Counted(lambda x: (x @ x, x.cos()))
    kept = []
    for i in range(6):
        x = torch.full((48, 48), float(i), device="npu")
        y, (z, w) = one(x), two(x)
        one(x)
        kept.append((y + z + w).sum())
        if i % 2:
            kept += [y, z]
    return kept


RIGHT = [f for name, f in list(globals().items()) if name.startswith("right_")]
# What the text of a program may name.
NAMES = globals()
