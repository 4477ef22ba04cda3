"""A call gives what cpu gives, whatever calls and switches came before it."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_utils import set_default_dtype

from npu_dispatch import _C
from tests.ecosystem.both import same


def in_turn(calls, *tensors):
    """Hold a sequence of calls, each on copies of the same tensors, to cpu's."""
    for call in calls:
        same(call, *tensors)


def test_results_follow_the_default_dtype_of_the_call():
    def under(dtype, call):
        def run(t):
            with set_default_dtype(dtype):
                return call(t)

        return run

    single, double, half = torch.float32, torch.float64, torch.float16
    for call in (torch.sqrt, torch.mean, lambda t: t / 3, lambda t: t * 0.5):
        order = (single, double, single, half, double)
        in_turn([under(d, call) for d in order], torch.arange(4))


POWERS = [lambda t, e=e: t**e for e in (2, -1, 2, 0, -2, 300, 1)]
NARROW = (1, 127, 128, -1, -128, -129, 255, 256, 40_000, 65_504, 65_536, 1e9)
FILLS = [lambda t, v=v: t.fill_(v) for v in NARROW]
FILLS += [lambda t, v=v: t.add(v) for v in (3, 1000, 2, 70_000, -5)]
DIVISORS = [2, 0, 3, 0, *map(torch.tensor, (2, 0, 2))]
BOUNDS = ((0.0, 1.0), (2.0, 1.0), (1.0, 2.0))
MODES = ("trunc", "floor", "trunc")
# Calls that are right and wrong by a number in turn | the tensor they are made on.
TURNS = """
POWERS | torch.arange(4)
POWERS | torch.arange(300_000)
[lambda t, e=e: t.pow_(e) for e in (3, -1, 1)] | torch.arange(4)
[lambda a: torch.addmm(a, a, a)] * 2 | torch.ones(8, 8).bool()
[lambda a: torch.addmm(a, a, a)] * 2 | torch.ones(400, 400).bool()
FILLS | torch.ones(5).to(torch.int8)
FILLS | torch.ones(5).to(torch.uint8)
FILLS | torch.ones(5).to(torch.float16)
[lambda t, d=d: t // d for d in DIVISORS] | torch.arange(6)
[lambda t, d=d: torch.remainder(t, d) for d in (2, 0, 5)] | torch.arange(6)
[lambda t, p=p: t.bernoulli_(p) * 0 for p in (0.5, 2.0, 0.3, -1.0)] | torch.ones(6)
[lambda t, p=p: t.uniform_(*p) * 0 for p in BOUNDS] | torch.ones(6)
[lambda t, p=p: torch.histc(t, 4, *p) for p in BOUNDS] | torch.ones(6)
[lambda t, p=p: F.hardtanh(t, *p) for p in BOUNDS] | torch.ones(6)
[lambda t, m=m: torch.div(-t, 4, rounding_mode=m) for m in MODES] | torch.arange(6)
"""


@pytest.mark.parametrize("row", TURNS.strip().splitlines())
def test_a_number_is_looked_at_in_each_call(row):
    in_turn(*(eval(part, globals()) for part in row.split(" | ")))


def layouts(device):
    """Return tensors of one shape whose strides differ, contiguous to torch all."""
    plain = torch.arange(6.0, device=device).reshape(2, 3, 1, 1)
    last = plain.contiguous(memory_format=torch.channels_last)
    return plain, last, plain.as_strided((2, 3, 1, 1), (3, 1, 7, 9))


CALLS = {
    "relu": torch.relu,
    "add": lambda t: t + t,
    "add_scalar": lambda t: t + 1,
    "clone": torch.clone,
    "sum": lambda t: t.sum(1, keepdim=True),
    "softmax": lambda t: torch.softmax(t, 1),
    "gelu": F.gelu,
    "pool": lambda t: F.max_pool2d(t, 1),
    "conv": lambda t: F.conv2d(t, torch.ones(4, 3, 1, 1, device=t.device)),
    "to": lambda t: t.to(torch.float64),
    "cat": lambda t: torch.cat((t, t)),
}


@pytest.mark.parametrize("name", CALLS)
def test_strides_of_results_are_those_of_this_call(name):
    for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0)):
        for i in order:
            on_cpu, on_npu = (CALLS[name](layouts(d)[i]) for d in ("cpu", "npu"))
            assert on_cpu.stride() == on_npu.stride(), (order, i)
            assert torch.equal(on_cpu, on_npu.cpu())


def test_a_learning_rate_that_changes_adds_no_memory():
    weights = [torch.nn.Parameter(torch.rand(5).npu()) for _ in range(3)]
    optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=True)
    on_cpu = [torch.nn.Parameter(w.detach().cpu()) for w in weights]
    reference = torch.optim.AdamW(on_cpu, lr=1e-3, fused=True)
    torch.manual_seed(1)

    def step(i):
        for group in optimizer.param_groups + reference.param_groups:
            group["lr"] = 1e-3 / (i + 1)
        for w, c in zip(weights, on_cpu, strict=True):
            c.grad = torch.rand(5)
            w.grad = c.grad.npu()
        optimizer.step()
        reference.step()

    for i in range(3):
        step(i)
    before = _C.cold_launches()
    for i in range(3, 20):
        step(i)
    assert _C.cold_launches() == before
    for w, c in zip(weights, on_cpu, strict=True):
        torch.testing.assert_close(w.cpu(), c, rtol=0, atol=0)


def test_queued_tasks_keep_the_switches_of_their_launch():
    x = torch.full((1000,), 1e-40)
    y = x.npu()
    torch.set_flush_denormal(True)
    try:
        flushed = (y * 1.0, x * 1.0)
        torch.set_flush_denormal(False)
        kept = (y * 1.0, x * 1.0)
    finally:
        torch.set_flush_denormal(False)
    for on_npu, on_cpu in (flushed, kept):
        assert torch.equal(on_npu.cpu(), on_cpu)
    assert not flushed[1].any() and kept[1].all()


@pytest.mark.parametrize("size", [64, 4096])
def test_a_switch_changes_after_the_tasks_that_were_launched_before(size):
    i = torch.arange(size)
    results = []
    n = i.npu()
    for _ in range(50):
        results.append((torch.sqrt(n), torch.float32))
        with set_default_dtype(torch.float64):
            results.append((torch.sqrt(n), torch.float64))
    for result, dtype in results:
        assert result.dtype == dtype
        assert torch.equal(result.cpu(), torch.sqrt(i.to(dtype)))


def test_a_call_on_no_elements_says_nothing_of_one_on_some():
    weight = torch.ones(2, 3, dtype=torch.bool)
    for rows in (0, 2):
        same(F.linear, torch.ones(rows, 3).bool(), weight)
    for rows in (3, 0):
        same(lambda t, i: t.index_select(0, i), torch.ones(rows, 4), torch.tensor([0]))
