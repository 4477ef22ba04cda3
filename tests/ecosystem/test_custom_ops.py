"""Operators of torch.library that know nothing of npu, and foreign work."""

from __future__ import annotations

import gc
import importlib.util
import re
import subprocess
import sysconfig
import threading
import warnings
import weakref
from pathlib import Path

import pytest
import torch

import npu_dispatch
from npu_dispatch import _C

DOCS = Path(__file__).resolve().parents[2] / "docs" / "custom_ops.md"
LIBRARY = torch.library.Library("npu_custom_ops", "DEF")


def example(name: str) -> str:
    pattern = rf"<!-- example: {name} -->\n```\w+\n(.*?)```"
    [text] = re.findall(pattern, DOCS.read_text(), re.S)
    return text


class Held:
    """Keeps a stream busy until the end of the block, and asks no clock."""

    def __init__(self, stream=None):
        self.stream = stream or torch.npu.current_stream()
        self.open = threading.Event()

    def __enter__(self):
        self.stream.submit(self.open.wait, name="held")
        return self

    def __exit__(self, *exc):
        self.open.set()


# Operators.


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


# Functions in a queue.


def test_a_function_runs_in_order_on_views_of_the_memory():
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        x, y = torch.ones(2, 3).npu().t(), torch.zeros(3, 2).npu()
        with Held(stream):
            x.mul_(2)
            stream.submit(lambda a, b: b.copy_(a + 1), x, y, writes=[y])
            z = y * 10
            y.zero_()
        assert z.cpu().tolist() == [[30, 30]] * 3
        assert y.cpu().tolist() == [[0, 0]] * 3


def test_memory_given_up_after_the_call_is_not_reused_before_it():
    stream = torch.npu.current_stream()
    seen = []
    with Held():
        x = torch.full((1000,), 7.0).npu()
        stream.submit(lambda a: seen.append(a.sum().item()), x)
        del x
        torch.zeros(1000).npu()
    stream.synchronize()

    assert seen == [7000]


def test_a_host_callback_and_everything_it_holds_is_let_go():
    stream = torch.npu.current_stream()

    class Thing:
        pass

    thing, seen = Thing(), []
    gone = weakref.ref(thing)
    stream.submit(lambda kept=thing: seen.append(type(kept)))
    del thing
    stream.synchronize()
    gc.collect()

    assert seen == [Thing]
    assert gone() is None


@pytest.mark.parametrize("kind", [IndexError, ValueError, TypeError, KeyError])
def test_an_exception_is_the_streams_asynchronous_error(kind):
    stream = torch.npu.Stream()
    ran = []

    def broken(view):
        raise kind("too bad")

    with Held(stream):
        stream.submit(broken, torch.ones(2).npu())
        stream.submit(ran.append)
    with pytest.raises(kind if kind is not KeyError else RuntimeError) as caught:
        stream.synchronize()

    text = str(caught.value)
    assert "broken failed" in text
    assert f"{kind.__name__}: " in text and "too bad" in text
    assert text.count(Path(__file__).name) == 2, "where it was raised and launched"
    assert ran == []
    with pytest.raises(RuntimeError, match="too bad"):
        stream.submit(ran.append)
    torch.npu.clear_error(stream)
    stream.submit(lambda: ran.append(1))
    stream.synchronize()
    assert ran == [1]


def test_what_a_failed_stream_drops_is_let_go_too():
    stream, gone = torch.npu.Stream(), []
    before = torch.npu.memory_allocated()
    with Held(stream):
        stream.submit(lambda: 1 / 0)
        x = torch.ones(4).npu()
        call = lambda view, kept=x: None  # noqa: E731
        gone.append(weakref.ref(call))
        stream.submit(call, x)
        del call, x
    with pytest.raises(RuntimeError, match="division"):
        stream.synchronize()
    torch.npu.clear_error(stream)
    gc.collect()

    assert gone[0]() is None
    assert torch.npu.memory_allocated() == before


def test_waiting_inside_the_queue_is_refused_instead_of_hanging():
    stream = torch.npu.current_stream()
    x = torch.ones(1).npu()

    with Held():
        stream.submit(lambda: x.add(1).item())
    with pytest.raises(RuntimeError, match="cannot wait for npu:0 stream 0"):
        stream.synchronize()

    torch.npu.clear_error()


@pytest.mark.parametrize(
    ("arguments", "writes", "error", "match"),
    [
        ((1,), None, TypeError, "needs a function, but got int"),
        ((print, 2), None, TypeError, "argument 0 is a int; bind"),
        ((print, torch.eye(2).to_sparse()), None, TypeError, "layout torch.sparse"),
        ((print,), [torch.ones(1)], ValueError, "writes names 1 tensor"),
        ((print, torch.ones(1, device="meta")), None, ValueError, "is on meta"),
    ],
)
def test_wrong_arguments(arguments, writes, error, match):
    with pytest.raises(error, match=match):
        torch.npu.current_stream().submit(*arguments, writes=writes)


def test_a_graph_calls_it_at_each_replay_and_lets_go_of_it():
    seen, x = [], torch.zeros(2).npu()

    def see(view):
        seen.append(view.tolist())

    gone, graph = weakref.ref(see), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.add_(1)
        torch.npu.current_stream().submit(see, x, writes=[])
        x.mul_(2)
    assert seen == []
    del see
    graph.replay()
    graph.replay()
    torch.npu.synchronize()

    assert seen == [[1, 1], [3, 3]]
    assert gone() is not None
    graph.reset()
    torch.npu.synchronize()
    gc.collect()
    assert gone() is None


def test_an_error_in_a_replay_names_its_node_and_line():
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        torch.npu.current_stream().submit(lambda: [][1], name="pick")
    graph.replay()

    with pytest.raises(
        IndexError, match=r"node 0, pick, captured at .*test_custom_ops"
    ):
        torch.npu.synchronize()
    torch.npu.clear_error()


def test_a_stream_without_a_queue_runs_it_at_once():
    stream, seen = torch.npu.SyncLaunchStream(), []

    stream.submit(seen.append, torch.ones(1).npu())

    assert len(seen) == 1


def test_autograd_notices_what_was_overwritten():
    x = torch.ones(2).npu().requires_grad_()
    y = x.exp()

    torch.npu.current_stream().submit(lambda v: v.zero_(), y.detach())

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_the_sanitizer_knows_what_it_touches(python):
    done = python(
        """
import torch
x = torch.ones(4).npu()
torch.npu.synchronize()
s = torch.npu.Stream()
x.add_(1)
s.submit(lambda v: None, x, writes=[], name="reader")
torch.npu.synchronize()
""",
        check=False,
        TORCH_NPU_SANITIZER="report",
    )

    assert "reader" in done.stderr
    assert "aten::add_" in done.stderr


# The documented examples.


@pytest.mark.parametrize("name", ["library", "submit"])
def test_the_documented_python(name, python):
    python(example(name))


@pytest.fixture(scope="module")
def scale_example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("c_example")
    source, library = folder / "scale.c", folder / "scale_example.so"
    source.write_text(example("c"))
    subprocess.run(
        [
            "cc",
            "-std=c99",
            "-Wall",
            "-Werror=incompatible-pointer-types",
            "-O1",
            "-shared",
            "-fPIC",
            f"-I{sysconfig.get_path('include')}",
            f"-I{npu_dispatch.get_include()}",
            str(source),
            "-o",
            str(library),
        ],
        check=True,
    )
    spec = importlib.util.spec_from_file_location("scale_example", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documented_c(scale_example):
    stream = torch.npu.Stream()
    with torch.npu.stream(stream), Held(stream):
        x = torch.ones(5).npu()
        x.add_(1)
        scale_example.scale(stream.npu_stream, x.data_ptr(), x.numel(), 4.0)
        y = x + 1
    stream.synchronize()

    assert y.cpu().tolist() == [9] * 5


def test_an_error_of_c_surfaces_as_the_streams(scale_example):
    stream = torch.npu.Stream()
    x = torch.ones(1).npu()

    scale_example.scale(stream.npu_stream, x.data_ptr(), 1, 0.0)
    with pytest.raises(ValueError, match="example::scale failed: a scale of 0"):
        stream.synchronize()
    with pytest.raises(RuntimeError, match="a scale of 0"):
        scale_example.scale(stream.npu_stream, x.data_ptr(), 1, 2.0)

    torch.npu.clear_error(stream)
    with pytest.raises(RuntimeError, match="is not a stream"):
        scale_example.scale(1 << 40, x.data_ptr(), 1, 2.0)


def test_the_header_is_also_cpp(tmp_path):
    source = tmp_path / "a.cpp"
    source.write_text(
        '#include "npu_dispatch.h"\nint main() { return sizeof(npu_api) == 0; }'
    )

    subprocess.run(
        [
            "g++",
            "-std=c++11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            f"-I{npu_dispatch.get_include()}",
            "-c",
            str(source),
            "-o",
            "/dev/null",
        ],
        check=True,
    )
    assert _C.api is not None
