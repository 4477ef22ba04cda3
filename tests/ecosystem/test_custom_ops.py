"""Operators of torch.library that know nothing of npu."""

from __future__ import annotations

import re
import threading
import warnings

import pytest
import torch
from held_stream import Held

LIBRARY = torch.library.Library("npu_custom_ops", "DEF")


def define(schema: str, kernel, fake=None):
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CPU")
    if fake:
        torch.library.register_fake(f"npu_custom_ops::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.npu_custom_ops, name)


def test_an_operator_with_a_fake_kernel_does_not_wait():
    calls = []

    def kernel(x, by):
        calls.append(threading.current_thread())
        return x * by

    twice = define("scaled(Tensor x, float by) -> Tensor", kernel, lambda x, by: x + 0)
    x = torch.arange(3.0).npu()

    for by in (2.0, 3.0):
        with Held(), torch.npu.sync_guard("error"):
            y = twice(x, by)
        assert y.cpu().tolist() == [0, by, 2 * by]
    assert len(calls) == 2, "the kernel runs when it is called, and not to try it"
    assert threading.current_thread() not in calls


def test_one_that_changes_its_argument_and_one_of_several_results():
    add_to = define(
        "add_to(Tensor(a!) x, Tensor[] others) -> ()",
        lambda x, others: [x.add_(o) for o in others] and None,
        lambda x, others: None,
    )
    split = define(
        "parts(Tensor x) -> (Tensor, Tensor[])",
        lambda x: (x.sum(), [x[:1].clone(), x[1:].clone()]),
        lambda x: (x.new_empty(()), [x.new_empty(1), x.new_empty(x.shape[0] - 1)]),
    )
    x = torch.ones(3).npu()

    with Held(), torch.npu.sync_guard("error"):
        add_to(x, [x, torch.ones(3).npu()])
        total, (head, tail) = split(x)

    assert (total.item(), head.tolist(), tail.tolist()) == (9, [3], [3, 3])


def test_one_without_a_fake_kernel_waits_and_says_so_once():
    bare = define("bare(Tensor x) -> Tensor", lambda x: x[x > 0])
    x = torch.tensor([1.0, -1.0]).npu()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [bare(x).tolist() for _ in range(3)] == [[1.0]] * 3

    [warning] = caught
    assert 'register_fake("npu_custom_ops::bare")' in str(warning.message)
    assert warning.category is UserWarning


def test_one_that_returns_a_number_waits_and_says_so():
    count = define("count(Tensor x) -> int", lambda x: int(x.sum()))

    with pytest.warns(UserWarning, match="not a tensor"):
        assert count(torch.ones(4).npu()) == 4


@pytest.mark.parametrize(
    ("name", "wrong", "match"),
    [
        ("shape", lambda x: x.new_empty(7), r"has shape \[2\] where \[7\] was"),
        (
            "dtype",
            lambda x: x.new_empty(2, dtype=torch.int64),
            "has type Float where Long",
        ),
    ],
)
def test_a_fake_kernel_that_is_wrong_is_found_out(name, wrong, match):
    op = define(f"wrong_{name}(Tensor x) -> Tensor", lambda x: x + 1, wrong)

    op(torch.ones(2).npu())
    with pytest.raises(RuntimeError, match=match):
        torch.npu.synchronize()

    torch.npu.clear_error()


def test_gradients_and_compilation_see_an_ordinary_operator():
    @torch.library.custom_op(
        "npu_custom_ops::cube", mutates_args=(), device_types="cpu"
    )
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    cube.register_fake(lambda x: torch.empty_like(x))
    cube.register_autograd(
        lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x = torch.tensor([2.0]).npu().requires_grad_()

    cube(x).sum().backward()

    assert x.grad.item() == 12
    compiled = torch.compile(lambda t: cube(t) + 1, backend="aot_eager")
    assert compiled(x).item() == 9


def test_a_captured_graph_replays_it():
    op = define("captured(Tensor x) -> Tensor", lambda x: x * 5, torch.empty_like)
    x = torch.ones(2).npu()
    op(x)
    graph = torch.npu.NPUGraph()

    with torch.npu.graph(graph):
        y = op(x)
    x.fill_(2)
    graph.replay()

    assert y.tolist() == [10, 10]


def test_python_kernels_still_queued_at_exit_run(python):
    done = python(
        """
import sys, time, torch
@torch.library.custom_op("exiting::slow", mutates_args=("x",), device_types="cpu")
def slow(x: torch.Tensor) -> None:
    time.sleep(0.001)
    x.add_(1)
    if x.item() == 50: print("all")
x = torch.zeros(1).npu()
for _ in range(50): slow(x)
"""
    )

    assert done.stdout == "all\n"


@pytest.mark.parametrize("kind", [IndexError, ValueError, TypeError, KeyError])
def test_an_operators_exception_keeps_its_kind_text_and_line(kind):
    def kernel(x):
        raise kind("no good")

    op = define(f"raises_{kind.__name__}(Tensor x) -> Tensor", kernel, torch.empty_like)
    try:
        with pytest.raises(torch.npu.DeviceError, match="no good") as caught:
            op(torch.ones(3, device="npu"))
            torch.npu.synchronize()
    finally:
        torch.npu.clear_error()

    assert isinstance(caught.value, kind) or kind is KeyError
    assert re.search(rf"in kernel, {re.escape(__file__)}:\d+", str(caught.value))
