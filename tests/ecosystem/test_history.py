"""A call gives what cpu gives, whatever calls and switches came before it."""

from __future__ import annotations

import contextlib

import pytest
import torch

from npu_dispatch import _C


def outcome(call, *args):
    """Return a call's value and strides, or what it raises."""
    try:
        result = call(*args)
    except Exception as error:
        return type(error), str(error).splitlines()[0]
    return result.dtype, result.stride(), result.cpu()


def same(calls, *tensors):
    """Hold a sequence of calls, each on copies of the same tensors, to cpu's."""
    for i, call in enumerate(calls):
        on_cpu = outcome(call, *(t.clone() for t in tensors))
        on_npu = outcome(call, *(t.npu() for t in tensors))
        torch.npu.synchronize()
        assert len(on_cpu) == len(on_npu), (i, on_cpu, on_npu)
        for a, b in zip(on_cpu, on_npu, strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
            else:
                assert a == b, (i, on_cpu, on_npu)


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def test_results_follow_the_default_dtype_of_the_call():
    i = torch.arange(4)

    def under(dtype, call):
        def run(t):
            with default_dtype(dtype):
                return call(t)

        return run

    single, double, half = torch.float32, torch.float64, torch.float16
    for call in (torch.sqrt, torch.mean, lambda t: t / 3, lambda t: t * 0.5):
        order = (single, double, single, half, double)
        same([under(d, call) for d in order], i)


@pytest.mark.parametrize("n", [4, 300_000])
def test_a_negative_power_of_integers_is_refused_by_the_call(n):
    i = torch.arange(n)
    same([lambda t, e=e: t**e for e in (2, -1, 2, 0, -2, 300, 1)], i)
    same([lambda t, e=e: t.pow_(e) for e in (3, -1, 1)], i)


@pytest.mark.parametrize("n", [8, 400])
def test_a_dtype_without_a_kernel_is_refused_by_the_call(n):
    b = torch.ones(n, n, dtype=torch.bool)
    product = [lambda a: torch.addmm(a, a, a)] * 2
    same(product, b)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float16])
def test_a_number_that_does_not_fit_is_refused_by_the_call(dtype):
    t = torch.ones(5).to(dtype)
    numbers = (1, 127, 128, -1, -128, -129, 255, 256, 40_000, 65_504, 65_536, 1e9)
    same([lambda t, v=v: t.fill_(v) for v in numbers], t)
    same([lambda t, v=v: t.add(v) for v in (3, 1000, 2, 70_000, -5)], t)


def test_integer_division_by_zero_is_refused_by_the_call():
    i = torch.arange(6)
    same([lambda t, d=d: t // d for d in (2, 0, 3, 0)], i)
    zero, two = torch.tensor(0), torch.tensor(2)
    same([lambda t, d=d: t // d for d in (two, zero, two)], i)
    same([lambda t, d=d: torch.remainder(t, d) for d in (2, 0, 5)], i)


def test_bounds_are_checked_at_each_call():
    t = torch.ones(6)

    def kept(f):
        return lambda t: f(t) * 0

    same([kept(lambda t, p=p: t.bernoulli_(p)) for p in (0.5, 2.0, 0.3, -1.0)], t)
    pairs = ((0.0, 1.0), (2.0, 1.0), (1.0, 2.0))
    same([kept(lambda t, p=p: t.uniform_(*p)) for p in pairs], t)
    same([lambda t, p=p: torch.histc(t, 4, *p) for p in pairs], t)
    same([lambda t, p=p: torch.nn.functional.hardtanh(t, *p) for p in pairs], t)


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
    "gelu": torch.nn.functional.gelu,
    "pool": lambda t: torch.nn.functional.max_pool2d(t, 1),
    "conv": lambda t: torch.nn.functional.conv2d(
        t, torch.ones(4, 3, 1, 1, device=t.device)
    ),
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
        with default_dtype(torch.float64):
            results.append((torch.sqrt(n), torch.float64))
    for result, dtype in results:
        assert result.dtype == dtype
        assert torch.equal(result.cpu(), torch.sqrt(i.to(dtype)))


def test_a_call_on_no_elements_says_nothing_of_one_on_some():
    weight = torch.ones(2, 3, dtype=torch.bool, device="npu")
    torch.nn.functional.linear(torch.ones(0, 3, device="npu").bool(), weight)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        torch.nn.functional.linear(torch.ones(2, 3, device="npu").bool(), weight)

    index = torch.tensor([0], device="npu")
    torch.index_select(torch.ones(3, 4, device="npu"), 0, index)
    with pytest.raises(RuntimeError, match="should be positive"):
        torch.index_select(torch.ones(0, 4, device="npu"), 0, index)
    torch.npu.synchronize()
