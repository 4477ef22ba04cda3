"""What everyday mistakes are told: what was asked, what was found, what to do.

At least as much as on cuda. Ctrl-C in a wait: api/test_waits.py, at exit: stress/; the
fork of a process that uses the device, and what it sends: multiprocess/.
"""

import contextlib
import copy
import pickle
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

npu = torch.npu
HERE = r"test_mistakes\.py:\d+"


def four():
    # No fixture: pytest would keep it until the leaks have been looked for.
    return torch.arange(4.0, device="npu")


def nine():
    return torch.tensor([9]).npu()


def loss(x, target):
    return F.cross_entropy(x.view(2, 2), target)


@contextlib.contextmanager
def raises(error, *words):
    """Every word is in the message, in whatever order."""
    with pytest.raises(error) as told:
        yield told
    text = str(told.value)
    missing = [word for word in words if not re.search(word, text)]
    assert not missing, text


@pytest.mark.parametrize("name", ["npu:", "npu:-1", "npu0", "npu:0:1"])
def test_a_malformed_device_is_quoted(name):
    with raises(RuntimeError, f"Invalid device string: '{name}'"):
        torch.ones(2, device=name)


@pytest.mark.parametrize("name", ["nup", "NPU"])
def test_an_unknown_kind_of_device_is_quoted(name):
    # The list of kinds is torch's own, which knows us as privateuseone.
    with raises(RuntimeError, "Expected one of cpu", f"device string: {name}$"):
        torch.ones(2, device=name)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.ones(2, device="npu:7"),
        lambda: torch.ones(2).to("npu:7"),
        lambda: npu.set_device(7),
        lambda: torch.nn.Linear(2, 2).npu(7),
    ],
)
def test_a_device_that_is_not_there_is_told_how_many_are(ask):
    with raises(RuntimeError, "7", "1 npu device", "NPU_DISPATCH_DEVICES"):
        ask()


@pytest.mark.parametrize(
    ("operator", "ask"),
    [
        ("aten::add.Tensor", lambda x: x + torch.ones(4)),
        ("aten::add.Tensor", lambda x: torch.ones(4) + x),
        ("aten::addmm", lambda x: torch.nn.Linear(4, 2)(x)),
        ("aten::addmm", lambda x: torch.nn.Linear(4, 2).npu()(torch.ones(4))),
        ("aten::cat", lambda x: torch.cat([x, torch.ones(3)])),
        ("aten::index.Tensor", lambda x: torch.ones(4)[x.long()]),
        ("aten::nll_loss_forward", lambda x: loss(x, torch.tensor([0, 1]))),
    ],
)
def test_mixed_devices_are_both_named_and_so_is_the_operator(operator, ask):
    x = four()
    with raises(RuntimeError, "same device", "npu:0", "cpu", re.escape(operator)):
        ask(x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # numpy's, of torch
@pytest.mark.parametrize("ask", [lambda x: x.numpy(), np.array, np.asarray])
def test_numpy_is_told_to_copy_to_the_host(ask):
    x = four()
    with raises(TypeError, "npu:0", r"Tensor\.cpu\(\)"):
        ask(x)


@pytest.mark.parametrize(
    ("what", "do"),
    [
        ("copy_ from the device", print),
        ("copy_ from the device", repr),
        ("item", lambda y: y.sum().item()),
        (r"bool\(\)", lambda y: bool(y.sum() > 0)),
        ("non_blocking=True", lambda y: y.cpu()),
        (r"torch\.npu\.synchronize\(\)", lambda y: npu.synchronize()),
    ],
    ids=["print", "repr", "item", "if", "cpu", "synchronize"],
)
def test_what_waits_in_a_capture_is_named_with_its_line_and_the_way_out(what, do):
    x, g = four(), npu.NPUGraph()

    with raises(RuntimeError, what, HERE, "while a graph is captured"), npu.graph(g):
        do(x * 2)


@pytest.mark.parametrize(
    ("operator", "ask"),
    [
        ("aten::embedding", lambda x: F.embedding(nine(), x.view(2, 2))),
        ("aten::index.Tensor", lambda x: x[nine()]),
        ("aten::nll_loss_forward", lambda x: loss(x, torch.tensor([0, 7]).npu())),
    ],
)
def test_an_index_out_of_range_is_named_with_its_operator_and_line(operator, ask):
    x = four()
    ask(x)

    with raises(
        IndexError,
        re.escape(operator) + " failed",
        "out of (range|bounds)",
        f"launched at .*{HERE}",
        "arguments of shapes",
        r"torch\.npu\.clear_error\(stream\)",
    ):
        npu.synchronize()
    npu.clear_error()

    assert (x + 1).tolist() == [1, 2, 3, 4]


def test_a_plain_index_out_of_range_is_an_error_of_its_own_call():
    x = four()
    with raises(IndexError, "index 9 is out of bounds for dimension 0 with size 4"):
        x[9]


def test_little_memory_is_told_what_is_used_and_what_may_help(python):
    code = """
import torch
kept = torch.empty(8 << 20, device="npu")
try:
    torch.empty(16 << 20, device="npu")
except torch.OutOfMemoryError as error:
    print(error)
del kept
print(torch.zeros(12 << 20, device="npu").sum().item())
"""
    told = python(code, NPU_DISPATCH_MEMORY="64M").stdout

    for word in (
        "Tried to allocate 64.00 MiB",
        "total capacity of 64.00 MiB of which 32.00 MiB is free",
        "32.00 MiB is allocated by PyTorch",
        "PYTORCH_NPU_ALLOC_CONF",
    ):
        assert word in told, told
    assert told.splitlines()[-1] == "0.0"


@pytest.mark.parametrize("send", [pickle.dumps, copy.deepcopy])
def test_streams_and_events_say_why_they_stay_here(send):
    with raises(TypeError, "cannot pickle <torch.npu.Stream", "of this process"):
        send(npu.Stream())
    with raises(TypeError, "cannot pickle", "interprocess=True"):
        send(npu.Event())


def test_a_generator_of_the_other_device_is_refused():
    here, there = torch.Generator("npu"), torch.Generator()

    with raises(RuntimeError, "'npu' device type for generator but found 'cpu'"):
        torch.rand(3, device="npu", generator=there)
    for ask in (
        lambda: torch.rand(3, generator=here),
        lambda: torch.ones(3).multinomial(1, generator=here),
        lambda: torch.normal(0.0, torch.ones(3), generator=here),
        lambda: torch.ones(3).bernoulli_(generator=here),
        lambda: torch.randperm(4, generator=here),
    ):
        with raises(RuntimeError, "'cpu' device type for generator but found 'npu'"):
            ask()
    assert torch.randperm(4, device="npu", generator=here).device.type == "npu"
