"""Programs of two ranks, right and wrong: what `wait()` and streams order.

Each rank runs all of them. In each line: the kind of what is found, with the rank that
finds it where only one does; what is made; two accesses, with what comes between them
before the second one.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from npu_dispatch.observe.segment import StatsReader, segment_file

npu = torch.npu
FILE = "program.py"
FORM = """\
here = user = npu.current_stream()
side, work = npu.Stream(), None
{made}
{first}  # first
{between}
with npu.stream(user):
    {second}  # second
    if work: work.wait()
npu.synchronize()
"""
FIRST_LINE, SECOND_LINE = 4, 7
CALLED = {
    "all_reduce": "hccl:all_reduce",
    "gather_into": "hccl:all_gather_into_tensor",
    "all_gather": "hccl:all_gather",
    "broadcast": "hccl:broadcast",
    "scatter_sum": "hccl:reduce_scatter_tensor",
    "all_to_all": "hccl:all_to_all_single",
    "batch_isend_irecv": "hccl:batch_isend_irecv",
    "isend": "hccl:send",
    "irecv": "hccl:recv",
    ".cpu()": "aten::copy_ memcpy",
    "mul_(": "aten::mul_.Tensor",
    "add_(": "aten::add_.Tensor",
    "fill_(": "aten::fill_.Scalar",
    "zero_(": "aten::zero_",
    "zeros(": "aten::zero_",
    " * 2": "aten::mul.Tensor",
    " + 1": "aten::add.Tensor",
}
TABLE = """
unordered-collective | t = made() | work = all_reduce(t) | y = t * 2
| t = made() | dist.all_reduce(t) | y = t * 2
unordered-collective | t, out = made(), ones(2000) | work = gather_into(out, t) | t.zero_()
| t, out = made(), ones(2000) | work = gather_into(out, t) | y = t * 2
| out = ones(2000) | work = gather_into(out, ones(1000)) | y = zeros(1000)
unordered-collective | t, out = made(), ones(2000) | work = gather_into(out, t) | out.fill_(7)
unordered-collective | t, out = made(), ones(2000) | work = gather_into(out, t) | out[1500:].fill_(7)
| t = made(2000) | work = all_reduce(t[:1000]) | t[1000:].fill_(7)
unordered-collective | t = made() | work = all_reduce(t) | t.cpu()
unordered-collective | t, user = made(), side | work = all_reduce(t) | work.wait() | y = t * 2
| t, user = made(), side | work = all_reduce(t) | with npu.stream(side): work.wait() | y = t * 2
| t, user = made(), side | work = all_reduce(t) | work.wait(); side.wait_stream(here) | y = t * 2
unordered-collective | t, user = made(), side | work = all_reduce(t) | side.wait_stream(here) | y = t * 2
unordered-collective | t = made() | with npu.stream(side): t.mul_(2) | work = all_reduce(t)
unordered-collective | t = made() | with npu.stream(side): t.mul_(2) | dist.all_reduce(t)
| t = made() | with npu.stream(side): t.mul_(2) | side.record_event().wait() | work = all_reduce(t)
unordered-collective | t = made() | with npu.stream(side): dist.all_reduce(t) | t.mul_(2)
| t = made() | with npu.stream(side): dist.all_reduce(t) | here.wait_stream(side) | t.mul_(2)
allocator-reuse | t = made() | with npu.stream(side): dist.all_reduce(t) | del t | zeros(1000)
| t = made() | with npu.stream(side): dist.all_reduce(t) | t.record_stream(side); del t | zeros(1000)
allocator-reuse | t = made(); waited(t, side) | with npu.stream(side): y = t * 2 | del t | zeros(1000)
| t = made(); waited(t, side) | with npu.stream(side): y = t * 2 | t.record_stream(side); del t | zeros(1000)
unordered-collective on rank 1 | t = made() | work = broadcast(t, 0) | t + 1
unordered-collective | t = made() | work = broadcast(t, 0) | t.add_(1)
unordered-collective | out, t = ones(1000), made(2000) | work = scatter_sum(out, t) | out + 1
| out, t = ones(1000), made(2000) | work = scatter_sum(out, t) | y = t.sum()
unordered-collective | t, out = made(), [ones(1000), ones(1000)] | work = all_gather(out, t) | out[1] + 1
unordered-collective | out, t = ones(1000), made() | work = all_to_all(out, t) | out + 1
unordered-collective | a, b = made(), made() | with together() as work: dist.all_reduce(a); dist.all_reduce(b) | b + 1
unordered-collective | t = made() | one = all_reduce(t) | work = all_reduce(t, group=other); one.wait()
unordered-collective | t = made() | one = all_reduce(t) | all_over() | work = all_reduce(t, group=other); one.wait()
| t = made() | one = all_reduce(t) | one.wait() | work = all_reduce(t, group=other)
| t = made() | all_reduce(t) | all_reduce(t).wait() | y = t * 2
| t, a, b = made(), ones(2000), ones(2000) | one = gather_into(a, t) | work = gather_into(b, t, group=other); one.wait()
| t = made() | y = all_reduce(t).get_future().then(lambda f: f.value()[0] * 2).wait() | y + 1
| t = made() | all_reduce(t) | npu.synchronize() | y = t * 2
| t = made() | one = all_reduce(t) | polled(one) | y = t * 2
| t = made() | all_reduce(t).wait(dist.default_pg_timeout) | y = t * 2
unordered-collective | t, got = made(), made(); send = dist.isend(t, peer) | work = dist.irecv(got, peer) | got + 1
unordered-collective | t, got = made(), made() | work = dist.isend(t, peer) | receive = dist.irecv(got, peer) | t.zero_()
unordered-collective | t, got = made(), made(); send = dist.isend(t, peer) | work = dist.irecv(got, peer) | send.wait() | got + 1
| t, got = made(), made(); work = dist.isend(t, peer) | receive = dist.irecv(got, peer) | work.wait(); receive.wait() | t.zero_(); got + 1
| t, got = made(), made() | work = dist.isend(t, peer) | receive = dist.irecv(got, peer) | y = t * 2; receive.wait()
unordered-collective | t, got = made(), made() | work = dist.batch_isend_irecv(both(t, got))[0] | got + 1
unordered-collective | t, got = made(), made() | work = dist.batch_isend_irecv(both(t, got))[0] | t.zero_()
unordered-collective | t, got = made(), made() | with npu.stream(side): t.mul_(2) | work = dist.isend(t, peer); dist.irecv(got, peer).wait()
| t, got = made(), made() | exchange(t, got) | t.zero_(); got + 1
"""  # noqa: E501


@dataclass(frozen=True)
class Program:
    kind: str  # of its finding; "" for none
    made: str
    first: str
    between: str
    second: str
    only: int | None = None  # the rank that finds it

    @property
    def text(self) -> str:
        return FORM.format(**vars(self))

    def called(self, side: str) -> list[str]:
        """Return what the operator of an access may be called."""
        access = getattr(self, side)
        return next(op for call, op in CALLED.items() if call in access).split()


def programs() -> list[Program]:
    """Read the table; what an added work.wait() makes right is there a second time."""
    found = []
    for line in TABLE.strip().splitlines():
        kind, made, first, *between, second = (c.strip() for c in line.split("|"))
        kind, _, only = kind.partition(" on rank ")
        between = "".join(between)
        found.append(
            Program(kind, made, first, between, second, int(only) if only else None)
        )
        if kind and not between and "work" in first:
            found.append(Program("", made, first, "work.wait()", second))
    return found


# What the programs call.


def ones(n: int) -> torch.Tensor:
    return torch.ones(n, device="npu")


def made(n: int = 1000) -> torch.Tensor:
    t = ones(n)
    npu.synchronize()
    return t


def polled(work: Any) -> None:
    while not work.is_completed():
        pass


def all_over() -> None:
    """Wait without asking any stream, which would be an order."""
    with StatsReader(segment_file()) as reader:
        while any(s.retired < s.submitted for s in reader.streams()):
            pass


def waited(t: torch.Tensor, side: Any) -> None:
    """Reduce it, and let a side stream wait for that until it is over.

    Else its memory would not be given out again yet, and nothing would be wrong.
    """
    work = dist.all_reduce(t, async_op=True)
    with npu.stream(side):
        work.wait()
    polled(work)


def both(sent: torch.Tensor, got: torch.Tensor) -> list[dist.P2POp]:
    peer = 1 - dist.get_rank()
    return [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, got, peer)]


def exchange(sent: torch.Tensor, got: torch.Tensor) -> None:
    rank = dist.get_rank()
    for turn in range(2):
        dist.send(sent, 1 - rank) if rank == turn else dist.recv(got, 1 - rank)


# No functions of ours, so that what they launch is of the program's line.
zeros = functools.partial(torch.zeros, device="npu")
all_reduce = functools.partial(dist.all_reduce, async_op=True)
broadcast = functools.partial(dist.broadcast, async_op=True)
all_gather = functools.partial(dist.all_gather, async_op=True)
gather_into = functools.partial(dist.all_gather_into_tensor, async_op=True)
scatter_sum = functools.partial(dist.reduce_scatter_tensor, async_op=True)
all_to_all = functools.partial(dist.all_to_all_single, async_op=True)
together = functools.partial(
    dist._coalescing_manager, device=torch.device("npu"), async_ops=True
)
# What the text of a program may name, and what the ranks add to it.
NAMES = globals()
