"""Operators of torch.library that know nothing of npu, and how they come and go."""

import gc
import re
import threading
import warnings

import pytest
import torch
from held_stream import Held
from torch.library import Library

from tests.ecosystem.both import failed, same
from tests.graphs.captured import captured

LIBRARY = torch.library.Library("npu_custom_ops", "DEF")
like = lambda x, *_: torch.empty_like(x)  # noqa: E731


def define(schema, kernel, fake=None, library=LIBRARY):
    name = schema.partition("(")[0]
    library.define(schema)
    library.impl(name, kernel, "CPU")
    if fake:
        torch.library.register_fake(f"{library.ns}::{name}", fake, lib=library)
    return getattr(getattr(torch.ops, library.ns), name)


def test_an_operator_with_a_fake_kernel_does_not_wait():
    calls = []

    def kernel(x, by):
        calls.append(threading.current_thread())
        return x * by

    twice = define("scaled(Tensor x, float by) -> Tensor", kernel, like)
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
        ("dtype", lambda x: x.new_empty(2).long(), "has type Float where Long"),
    ],
)
def test_a_fake_kernel_that_is_wrong_is_found_out(name, wrong, match):
    op = define(f"wrong_{name}(Tensor x) -> Tensor", lambda x: x + 1, wrong)

    op(torch.ones(2).npu())

    failed(RuntimeError, match)


def test_gradients_and_compilation_see_an_ordinary_operator():
    custom = {"mutates_args": (), "device_types": "cpu"}

    @torch.library.custom_op("npu_custom_ops::cube", **custom)
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    cube.register_fake(like)
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
    op = define("captured(Tensor x) -> Tensor", lambda x: x * 5, like)
    x = torch.ones(2).npu()
    op(x)

    graph, y = captured(lambda: op(x))
    x.fill_(2)
    graph.replay()

    assert y.tolist() == [10, 10]


def test_python_kernels_still_queued_at_exit_run(python):
    done = python("""
import sys, time, torch
@torch.library.custom_op("exiting::slow", mutates_args=("x",), device_types="cpu")
def slow(x: torch.Tensor) -> None:
    time.sleep(0.001)
    x.add_(1)
    if x.item() == 50: print("all")
x = torch.zeros(1).npu()
for _ in range(50): slow(x)
""")

    assert done.stdout == "all\n"


@pytest.mark.parametrize("kind", [IndexError, ValueError, TypeError, KeyError])
def test_an_operators_exception_keeps_its_kind_text_and_line(kind):
    def kernel(x):
        raise kind("no good")

    op = define(f"raises_{kind.__name__}(Tensor x) -> Tensor", kernel, like)
    op(torch.ones(3, device="npu"))

    error = failed(torch.npu.DeviceError, "no good")
    assert isinstance(error, kind) or kind is KeyError
    assert re.search(rf"in kernel, {re.escape(__file__)}:\d+", str(error))


def test_an_argument_that_a_failed_kernel_keeps_stays_as_it_was():
    kept = []

    def kernel(x):
        kept.append(x)
        raise ValueError("no good")

    op = define("keeps(Tensor x) -> Tensor", kernel, like)
    x, others = torch.ones(3).npu(), torch.full((3,), 7.0).npu()
    for argument in (x, others):
        op(argument)
        failed(torch.npu.DeviceError, "no good")

    assert [t.tolist() for t in kept] == [[1.0] * 3, [7.0] * 3]


def test_a_number_decides_the_types_of_results_and_which_there_are():
    """Calls that differ in it alone are of one operator and of other results."""
    types = (torch.float32, torch.float64, torch.int64)

    def results(make):
        return lambda x, which: (
            make(x).to(types[which % 3]),
            make(x) if which % 2 else None,
            make(x) if which > 2 else None,
        )

    schema = "chosen(Tensor x, int which) -> (Tensor, Tensor, Tensor)"
    op = define(schema, results(lambda x: x + 1), results(torch.empty_like))

    for which in (0, 1, 2, 3, 4, 5, 0, 5):
        for n in (3, 5):
            same(lambda x, which=which: op(x, which), torch.arange(n).float())


@pytest.mark.filterwarnings("ignore:.*jit.script")
def test_a_list_that_changes_after_a_call_does_not_change_the_call():
    """TorchScript gives an operator the program's own list, and no copy."""
    define(
        "weighted(Tensor x, int[] weights, bool[] flags) -> Tensor",
        lambda x, weights, flags: x + sum(weights) + 100 * sum(flags),
        like,
    )

    @torch.jit.script
    def program(x, one: int):
        weights, flags = [one, 2], [True, False]
        first = torch.ops.npu_custom_ops.weighted(x, weights, flags)
        weights[0] = 50
        flags[1] = True
        again = torch.ops.npu_custom_ops.weighted(x, [one, 2], [True, False])
        changed = torch.ops.npu_custom_ops.weighted(x, weights, flags)
        return first, again, changed

    x = torch.zeros(2)
    expected = [t.tolist() for t in program(x, 1)]
    x = x.npu()
    with Held():
        results = program(x, 1)

    assert [t.tolist() for t in results] == expected


@pytest.mark.filterwarnings("ignore:npu. each call")
@pytest.mark.parametrize("waits", [False, True])
def test_a_list_of_optional_tensors_may_be_none(waits):
    def kernel(x, more=None):
        return sum((t for t in more or () if t is not None), x)

    op = define(
        f"optional_list_{waits}(Tensor x, Tensor?[]? more=None) -> Tensor",
        kernel,
        None if waits else like,
    )
    x = torch.ones(3)

    for more in (None, [None], [None, x, x], None):
        same(op, x, more)


@pytest.mark.parametrize("kind", ["Tensor[]?", "Tensor?[]?", "Scalar[]?", "int[]?"])
def test_no_list_is_not_an_empty_list(kind):
    name = "".join(c for c in kind if c.isalpha()) + str(kind.count("?"))
    op = define(
        f"listed_{name}(Tensor x, {kind} more=None) -> Tensor",
        lambda x, more=None: x + (100 if more is None else len(more)),
        like,
    )

    for more in (None, [], None):
        same(op, torch.zeros(2), more)


@pytest.mark.filterwarnings("ignore:npu. each call")
def test_a_kernel_is_told_to_make_its_tensors_where_it_runs():
    longer = define(
        "longer(Tensor x, Device at) -> Tensor",
        lambda x, at: torch.cat([x, torch.ones(int(x.sum()), device=at)]),
    )
    x = torch.ones(2)

    for device in ("cpu", "npu", "npu:0"):
        y = longer(x.to(device), torch.device(device))
        assert y.device == x.to(device).device
        assert y.tolist() == [1] * 4


def grow_and_shrink(x, out):
    """Leave the result in other memory than the one that `out` came with."""
    n = out.shape[0]
    out.resize_(64 * n).fill_(7)
    out.resize_(n).copy_(x + 1)


def fill_and_turn(x, out):
    out.copy_(x).t_()


@pytest.mark.parametrize(
    ("kernel", "shape"), [(grow_and_shrink, (3,)), (fill_and_turn, (3, 3))]
)
def test_a_kernel_may_give_what_it_writes_other_memory_or_strides(kernel, shape):
    schema = f"{kernel.__name__}(Tensor x, Tensor(a!) out) -> ()"
    op = define(schema, kernel, lambda x, out: None)

    def run(x):
        out = torch.zeros(shape, device=x.device)
        op(x, out)
        return out.tolist()

    for factor in (1, 2):
        same(run, torch.arange(9.0)[: 3 ** len(shape)].reshape(shape) * factor)


def test_an_operator_that_is_defined_anew_is_another_one():
    def defined(arguments, kernel):
        library = torch.library.Library("npu_anew", "FRAGMENT")
        define(f"f({arguments}) -> Tensor", kernel, like, library)
        return library

    x = torch.ones(3, device="npu")
    # A schema of today often has the address of an earlier one.
    for _ in range(20):
        one = defined("Tensor x", lambda x: x + 1)
        assert torch.ops.npu_anew.f(x).tolist() == [2, 2, 2]
        one._destroy()
        two = defined("Tensor x, Tensor y", lambda x, y: x + y + 1)
        assert torch.ops.npu_anew.f(x, x).tolist() == [3, 3, 3]
        two._destroy()


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("how", ["another library", "overridden", "fake alone"])
def test_an_operator_whose_kernel_is_exchanged_has_the_new_ones_shapes(how):
    def first(x):
        return x + 1

    def second(x):
        return x[:2].double() + 5

    short = how.replace(" ", "_")
    name = f"npu_exchanged::{short}"
    with torch.library._scoped_library("npu_exchanged", "FRAGMENT") as library:
        library.define(f"{short}(Tensor x) -> Tensor")
        kernels = torch.library.Library("npu_exchanged", "IMPL")
        (library if how == "overridden" else kernels).impl(name, first, "CPU")
        torch.library.register_fake(name, like, lib=kernels)
        op = getattr(torch.ops.npu_exchanged, short)
        x = torch.arange(4.0, device="npu")
        for _ in range(3):
            assert op(x).tolist() == [1, 2, 3, 4]
        if how == "another library":
            kernels._destroy()
            kernels = torch.library.Library("npu_exchanged", "IMPL")
            kernels.impl(name, second, "CPU")
        else:
            library.impl(name, second, "CPU", allow_override=True)
        if how == "fake alone":
            kernels._destroy()  # the caller waits from here on
        else:
            torch.library.register_fake(
                name, lambda x: x.new_empty(2, dtype=torch.double), lib=kernels
            )

        for _ in range(3):
            y = op(x)
            assert y.dtype == torch.double and y.tolist() == [5, 6]
        kernels._destroy()


def library_of(name):
    """Return the library of an operator that was called and of which much is known."""
    library = Library("npu_goes", "FRAGMENT")
    op = define(f"{name}(Tensor x) -> Tensor", torch.neg, like, library)
    for _ in range(3):
        op(torch.ones(3, device="npu"))
    torch.npu.synchronize()
    return library, op


def busy():
    x = torch.ones(1 << 20, device="npu")
    for _ in range(100):
        x.mul_(1.0)  # what the queue is busy with
    return x


def destroyed(library):
    library._destroy()


def overridden(library):
    library.impl("op_overridden", lambda x: x + 100, "CPU", allow_override=True)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("change", [destroyed, overridden], ids=lambda c: c.__name__)
def test_queued_calls_have_the_kernel_of_their_launch(change):
    library, op = library_of(f"op_{change.__name__}")

    y = op(busy())
    change(library)

    assert torch.equal(y.cpu(), torch.full((1 << 20,), -1.0))
    library._destroy()


def test_queued_calls_run_before_a_library_that_nobody_has():
    library, op = library_of("dropped")

    y = op(busy())
    del library
    gc.collect()

    assert torch.equal(y.cpu(), torch.full((1 << 20,), -1.0))


def test_a_call_that_could_not_run_before_fails():
    library, op = library_of("stuck")
    x, gate = torch.ones(3, device="npu"), torch.npu.ExternalEvent()
    gate.wait(torch.npu.current_stream())
    op(x)

    with pytest.warns(RuntimeWarning, match="npu_goes::stuck: npu:0 stream 0 waits"):
        library._destroy()
    gate.record(torch.npu.Stream())

    failed(torch.npu.DeviceError, "npu_goes::stuck was taken away")


def test_a_replay_of_an_operator_that_has_gone_fails():
    library, op = library_of("replayed")
    x = torch.ones(3, device="npu")
    graph, _ = captured(lambda: op(x))
    library.impl("replayed", lambda x: x + 1, "CPU", allow_override=True)
    library._destroy()

    graph.replay()

    failed(torch.npu.DeviceError, "npu_goes::replayed was taken away")
