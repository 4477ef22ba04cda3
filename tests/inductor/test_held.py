"""Blocks of models and operators, compiled, with the results of all calls held.

Each is called five times, so that most calls replay a graph, and is compared with
cpu. The gate has one of each kind, which follow from the seed; the rest wait for the
night.
"""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiled import clones, outcome, tensors
from model_blocks import BLOCKS, Made
from op_samples import OPS, first_samples
from torch import Tensor, nn

import npu_dispatch

CALLS = 5
CLOSE = {"rtol": 1e-4, "atol": 1e-4, "equal_nan": True}
OPS_IN_A_NIGHT = 60
# In inference torch's decomposition returns statistics, which nobody reads, on each
# device but cpu; the kernel of npu, as that of cpu, returns none.
OTHERWISE = {"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    draw = random.Random(str(metafunc.config.option.hypothesis_seed))
    blocks, ops = draw.sample(BLOCKS, len(BLOCKS)), draw.sample(OPS, OPS_IN_A_NIGHT)
    steady = [op for op in ops if op.name not in OTHERWISE]
    for name, all_of, called in (
        ("block", blocks, "__name__"),
        ("op", ops, "formatted_name"),
        ("steady_op", steady, "formatted_name"),
    ):
        if name in metafunc.fixturenames:
            night = [pytest.param(one, marks=pytest.mark.nightly) for one in all_of]
            ids = [getattr(one, called) for one in all_of]
            metafunc.parametrize(name, [all_of[0], *night[1:]], ids=ids)


def made(block: Callable[[], Made]) -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    module, x = block()
    return module, [x * (1 + 0.1 * i) for i in range(CALLS)]


def train(run: Any, module: nn.Module, inputs: list[Tensor]) -> list[Any]:
    """Accumulate gradients, and return what all calls gave."""
    held = []
    for x in inputs:
        x = x.detach().requires_grad_()
        y = run(x)
        y.square().mean().backward()
        held.append((y.detach(), x.grad))
    return [held, [p.grad for p in module.parameters()], list(module.buffers())]


def test_a_block_trains_as_on_cpu(block: Callable[[], Made]):
    cpu, (x, *_) = made(block)
    npu = copy.deepcopy(cpu).npu()

    want = outcome(cpu, (x.clone().requires_grad_(),), [cpu])
    got = outcome(torch.compile(npu), (x.npu().requires_grad_(),), [npu])

    assert len(got["gradients"]) > 1
    torch.testing.assert_close(got, want, **CLOSE)


def test_a_block_by_reduce_overhead(block: Callable[[], Made]):
    cpu, inputs = made(block)
    npu = copy.deepcopy(cpu).npu()

    want, here = train(cpu, cpu, inputs), [x.npu() for x in inputs]
    got = train(torch.compile(npu, mode="reduce-overhead"), npu, here)

    torch.testing.assert_close(got, want, check_device=False, **CLOSE)


def test_a_block_without_gradients_by_reduce_overhead(block: Callable[[], Made]):
    cpu, inputs = made(block)
    npu = copy.deepcopy(cpu).npu()
    compiled = torch.compile(npu, mode="reduce-overhead")

    with torch.no_grad():
        want = [cpu(x) for x in inputs]
        got = [compiled(x.npu()) for x in inputs]

    torch.testing.assert_close(got, want, check_device=False, **CLOSE)


def test_a_block_by_compile_step(block: Callable[[], Made]):
    cpu, inputs = made(block)
    npu = copy.deepcopy(cpu).npu()

    def optimizer(module: nn.Module) -> torch.optim.Optimizer:
        trained = [p for p in module.parameters() if p.requires_grad]
        return torch.optim.SGD(trained, lr=0.05)

    def loss_fn(y: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        return (y * scale).square().mean(), y

    want: list[Any] = []
    stepping = optimizer(cpu)
    for x in inputs * 2:
        stepping.zero_grad()
        loss, y = loss_fn(cpu(x), torch.ones(()))
        loss.backward()
        stepping.step()
        want.append((loss.detach(), y.detach()))
    step = npu_dispatch.compile_step(npu, optimizer(npu), loss_fn)
    scale = torch.ones((), device="npu")
    got = [step(x.npu(), scale) for x in inputs * 2]

    # Inductor takes no nn.LSTM.
    assert step.replays >= CALLS or "rnn_layer" in step.reason, step.reason
    torch.testing.assert_close(got, want, check_device=False, **CLOSE)
    ours, theirs = (dict(module.named_parameters()) for module in (npu, cpu))
    torch.testing.assert_close(ours, theirs, check_device=False, **CLOSE)


def observed(function: Any, arguments: Any, device: str) -> list[Any]:
    """Call five times, run backward behind the last call, and return it all."""
    held, inputs = [], []
    for _ in range(CALLS):
        torch.manual_seed(0)
        flat, keywords = clones(arguments, device)
        inputs.append(tensors((flat, keywords)))
        held.append(tensors(function(*flat, **keywords)))
    sources = [t for results in held for t in results if t.requires_grad]
    if sources:
        sum(t.abs().pow(2).sum() for t in sources).backward()  # type: ignore[union-attr]
    return [
        [[t.detach().cpu() for t in results] for results in held],
        [[t.grad.cpu() for t in given if t.grad is not None] for given in inputs],
    ]


def called(op: Any) -> Any:
    return lambda *arguments, **keywords: op(*arguments, **keywords)


def test_an_operator_by_reduce_overhead(op: Any):
    call = called(op)
    for arguments in first_samples(op):
        try:
            want = observed(torch.compile(call), arguments, "npu")
        except Exception:
            # The test below asks whether cpu refuses it as well.
            continue
        torch._dynamo.reset()
        got = observed(torch.compile(call, mode="reduce-overhead"), arguments, "npu")
        torch.testing.assert_close(got, want, **CLOSE)


def once(function: Any, arguments: Any, device: str) -> Any:
    torch.manual_seed(0)
    flat, keywords = clones(arguments, device)
    found = outcome(lambda *flat: function(*flat, **keywords), flat)
    return found["results"], found["gradients"]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_it_computes_what_eager_code_does(steady_op: Any, dynamic: bool):
    call = called(steady_op)

    for arguments in first_samples(steady_op):
        try:
            want = once(call, arguments, "cpu")
            again = once(call, arguments, "cpu")
            torch.testing.assert_close(again, want, equal_nan=True)
        except Exception:
            continue  # not even cpu's own result repeats
        compiled = torch.compile(call, dynamic=dynamic)
        try:
            got = once(compiled, arguments, "npu")
        except Exception:
            # What Dynamo and Inductor do not compile for cpu either, or what cannot be
            # asked of the npu: indices that must lie on cpu, say.
            with pytest.raises(Exception):  # noqa: B017
                once(torch.compile(call, dynamic=dynamic), arguments, "cpu")
                once(call, arguments, "npu")
            continue
        try:
            torch.testing.assert_close(got, want, **CLOSE)
        except AssertionError:
            # What Inductor itself computes otherwise, it does on cpu too.
            want = once(torch.compile(call, dynamic=dynamic), arguments, "cpu")
            torch.testing.assert_close(got, want, **CLOSE)
