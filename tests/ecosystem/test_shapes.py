"""Calls whose shapes change from one to the next, as cpu makes them."""

from __future__ import annotations

import random
import re
import signal
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

from npu_dispatch import _C
from tests.ecosystem.shaped import CALLS


def results(call, arguments):
    """Return a call's results and its gradients."""
    leaves = [a.requires_grad_() if a.is_floating_point() else a for a in arguments]
    outs = call(*(a.clone() if a.is_floating_point() else a for a in leaves))
    outs = [outs] if isinstance(outs, torch.Tensor) else list(outs)
    found = [o.detach() for o in outs]
    if outs[0].requires_grad:
        outs[0].square().sum().backward()
        found += [a.grad for a in leaves if a.grad is not None]
    return found


@pytest.mark.parametrize("name", CALLS)
def test_each_shape_gives_what_cpu_gives(name):
    make, call = CALLS[name]
    corrected = _C.shape_corrections()
    order = [(n, c) for n in (2, 3, 5, 8) for c in (2, 3, 7)]
    random.Random(1).shuffle(order)
    for n, c in [*order, *order[::2]]:
        torch.manual_seed(n * 100 + c)
        arguments = make(n, c)
        on_npu = results(call, [a.npu() for a in arguments])
        on_cpu = results(call, list(arguments))
        for a, b in zip(on_cpu, on_npu, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape, (n, c)
            assert a.stride() == b.stride(), (n, c)
            torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-4)
    assert _C.shape_corrections() == corrected


META_FUNCTIONS = re.compile(r"torch/(_meta_registrations|_decomp|_refs|_prims)")


@pytest.mark.parametrize("name", CALLS)
def test_no_python_tells_the_shapes_of_a_kind_of_call_that_was_made_before(name):
    make, call = CALLS[name]
    asked = []

    def look(frame, event, arg):
        if event == "call" and META_FUNCTIONS.search(frame.f_code.co_filename):
            asked.append(frame.f_code.co_name)

    for n, c in [(4, 5), (5, 6), (4, 5), (5, 6)]:
        results(call, [a.npu() for a in make(n, c)])
    for n, c in [(6, 5), (7, 8)]:
        arguments = [a.npu() for a in make(n, c)]
        sys.setprofile(look)
        try:
            results(call, arguments)
        finally:
            sys.setprofile(None)
    del arguments
    assert not asked


def test_no_python_tells_shapes_because_others_were_negative():
    """Tensors that stand for arguments keep no mark of calls before."""
    asked = []

    def look(frame, event, arg):
        if event == "call" and META_FUNCTIONS.search(frame.f_code.co_filename):
            asked.append(frame.f_code.co_name)

    def calls():
        for rank in range(1, 12):
            ones = torch.ones((1,) * rank, dtype=torch.complex64, device="npu")
            negative = ones.conj().imag
            assert negative.is_neg()
            negative.neg_()
        x = torch.rand(4, 6).npu()[:, ::2]
        sys.setprofile(look)
        try:
            results.append((x, x.square()))
        finally:
            sys.setprofile(None)

    results = []
    # Each thread has stand-ins of its own, which are new here.
    thread = threading.Thread(target=calls)
    thread.start()
    thread.join()
    [(x, squares)] = results
    assert torch.equal(squares.cpu(), x.cpu().square())
    assert not asked


NAMES = [
    "abs", "add", "addmm", "all", "amax", "argmax", "bmm", "cat", "clamp",
    "complex", "cumsum",
    "diff", "div", "dot", "fill", "flip", "full_like", "gather", "index_add",
    "index_put", "index_select", "isclose", "isfinite", "isin", "kthvalue",
    "lerp", "linalg.vector_norm", "logical_and", "logical_not", "logsumexp",
    "masked_fill", "max", "mean", "median", "nan_to_num", "norm", "polar", "pow",
    "prod", "quantile", "remainder", "repeat", "roll", "scatter", "scatter_add",
    "select_scatter", "softmax", "sort", "std", "sum", "tril", "trace",
    "var_mean", "where", "nn.functional.layer_norm", "nn.functional.conv2d",
    "nn.functional.avg_pool2d", "nn.functional.batch_norm",
    "nn.functional.embedding", "nn.functional.gelu", "nn.functional.interpolate",
    "nn.functional.l1_loss", "nn.functional.mse_loss", "nn.functional.nll_loss",
    "nn.functional.pad",
    "nn.functional.scaled_dot_product_attention", "nn.functional.silu",
]  # fmt: skip


@pytest.mark.parametrize(
    "op", [o for o in op_db if o.name in NAMES], ids=lambda o: o.name
)
def test_a_call_that_was_made_before_is_found_again(op):
    """Encoded by its wrapper, it has the words that its boxed form has."""
    for sample in list(op.sample_inputs("cpu", torch.float32))[:12]:
        sample = sample.transform(
            lambda t: t.npu() if isinstance(t, torch.Tensor) else t
        )

        def call(sample=sample):
            return op(sample.input, *sample.args, **sample.kwargs)

        for _ in range(3):
            call()
        before = _C.cold_launches()
        call()
        assert _C.cold_launches() == before, sample
    torch.npu.synchronize()


@pytest.mark.parametrize(
    "op", [o for o in op_db if o.name in NAMES], ids=lambda o: o.name
)
def test_no_shape_is_corrected_by_a_run_on_zeros(op):
    """A shape function that is wrong costs time, and no result shows it."""
    before = _C.shape_corrections()
    for sample in op.sample_inputs("cpu", torch.float32):
        sample = sample.transform(
            lambda t: t.npu() if isinstance(t, torch.Tensor) else t
        )
        op(sample.input, *sample.args, **sample.kwargs)
        assert _C.shape_corrections() == before, sample
    torch.npu.synchronize()


def test_a_wrong_empty_argument_is_refused_where_one_with_elements_was_right():
    x, weight = torch.ones(5, 3).npu(), torch.ones(10, 3).npu()
    F.linear(x, weight, torch.ones(10).npu())
    with pytest.raises(RuntimeError, match=r"\(10\) must match .* \(0\)"):
        F.linear(x, weight, torch.ones(0).npu())


@pytest.mark.parametrize("rank", [65, 256, 300])
def test_a_tensor_may_have_more_dimensions_than_a_byte_counts(rank):
    x = torch.arange(6.0).view([2] + [1] * (rank - 2) + [3])
    for call in (
        lambda t: t + 1,
        lambda t: t.transpose(0, -1) * 2,
        lambda t: torch.cat([t, t], -1),
        lambda t: torch.add(t, t.transpose(1, 2), out=torch.empty_like(t)),
    ):
        expected, result = call(x), call(x.npu())
        assert result.shape == expected.shape and result.stride() == expected.stride()
        assert torch.equal(result.cpu(), expected)


def test_signal_handlers_may_launch_in_the_middle_of_a_launch():
    """The queue is full, so most signals arrive while a launch waits in it."""
    a = torch.arange(6.0).npu()
    big = torch.rand(400, 400).npu()
    of_handler, of_program = [], []

    def handler(number, frame):
        n = 2 + len(of_handler) % 5
        of_handler.append((n, torch.add(a[:n], a[:n], alpha=3)))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for i in range(12_000):
            if i % 400 == 0:
                torch.mm(big, big)
            n = 1 + i % 6
            of_program.append((n, torch.add(a[:n], a[:n], alpha=2)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    torch.npu.synchronize()
    assert of_handler
    for n, result in of_handler:
        assert result.tolist() == [4.0 * i for i in range(n)]
    for n, result in of_program[::37]:
        assert result.tolist() == [3.0 * i for i in range(n)]


@pytest.mark.libc_heap
def test_memory_of_plans_is_bounded():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    a = torch.rand(40_000).npu()

    def calls(first, last):
        for n in range(first, last):
            torch.add(a[:n], 1)
            torch.sum(a[:n])
        torch.npu.synchronize()

    calls(1, 8_000)
    before = resident()
    calls(8_000, 40_000)
    assert resident() - before < 16 << 20
