"""Each value of an argument has a graph of its own: by its type, and to the bit."""

import dataclasses
import enum
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from step_loop import Both
from torch import Tensor, nn

from npu_dispatch.whole_step.depends import exact


class Color(enum.IntEnum):
    RED = 1


class Count(int):
    pass


@dataclasses.dataclass(frozen=True)
class Config:
    scale: float


@dataclasses.dataclass(frozen=True)
class OtherConfig(Config):
    pass


def one() -> int:
    return 1


DIFFERENT = [
    *(1, True, 1.0, 1 + 0j, Color.RED, Count(1), "1", b"1", None, 0, False, 0.0, 0j),
    *(math.nan, complex(0, math.nan), math.inf, 5e-324),
    *(torch.float32, torch.float64, torch.int, torch.bool, "torch.float32"),
    *(torch.strided, torch.channels_last, torch.device("cpu"), torch.device("npu:0")),
    *(Config(1), Config(1.0), Config(True), Config(0.0), Config(math.nan)),
    *(OtherConfig(1), Config, OtherConfig, one, frozenset({1}), frozenset({True})),
    *(torch.Size([1]), torch.Size([1, 1]), Config(Config(1)), Config(Config(True))),
    *(np.float32(1), np.float64(1), np.int64(1), np.bool_(1), np.float64(-0.0)),
]


def test_different_values_have_different_keys():
    keys = [exact(value) for value in DIFFERENT]
    equal = [
        (DIFFERENT[i], DIFFERENT[k])
        for i in range(len(keys))
        for k in range(i)
        if keys[i] == keys[k]
    ]

    assert equal == []
    assert len(set(keys)) == len(keys)


SAME = [
    (10**30, 10**30 + 0),
    (float("1.5"), float("1.5")),
    (math.nan, float(str(math.nan))),
    ("a b", " ".join("ab")),
    (Config(2.5), Config(float("2.5"))),
    (torch.device("npu", 0), torch.device("npu:0")),
    (torch.ones(2, 3).shape, torch.Size([2, 3])),
    (Color.RED, Color(1)),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_the_same_value_has_the_same_key(first: object, second: object):
    assert exact(first) == exact(second)
    assert hash(exact(first)) == hash(exact(second))


@pytest.mark.parametrize("value", [{1}, {}, dataclasses.make_dataclass("D", ["a"])(1)])
def test_what_may_change_has_no_key(value: object):
    with pytest.raises(TypeError, match="unhashable"):
        exact(value)


@pytest.mark.parametrize("value", [-0.0, complex(0, -0.0), -math.nan, Config(-0.0)])
def test_what_dynamo_cannot_tell_has_no_key(value: object):
    with pytest.raises(TypeError, match="cannot tell"):
        exact(value)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, k: Any) -> Tensor:
        if isinstance(k, dict):
            [k] = k
        scale = 3.0 if k is True else 1.0
        scale *= 2.0 if isinstance(k, float) else 1.0
        if k == 0:
            scale *= math.copysign(1.0, k)
        return self.layer(x) * scale


VALUES = [1, True, 1.0, 0, False, 0.0, -0.0]


def made(model: nn.Module, loss_fn: Any = F.mse_loss) -> Any:
    """Return the model, a step of its twin, and a batch for both."""
    both = Both(model, lr=0.0, loss_fn=loss_fn)
    return both.theirs, both.step, torch.rand(3, 4).npu(), torch.rand(3, 4).npu()


@pytest.mark.parametrize("first", VALUES, ids=repr)
@pytest.mark.filterwarnings("ignore:compile_step runs eagerly")  # -0.0, and as a key
@pytest.mark.parametrize("make", [lambda k: k, lambda k: {k: 0}], ids=["value", "key"])
def test_a_call_gets_what_its_own_value_makes(first: Any, make: Any):
    torch.manual_seed(0)
    theirs, step, x, y = made(Model())
    for _ in range(4):
        step(x, make(first), y)

    for value in VALUES:
        want = F.mse_loss(theirs(x, make(value)), y)
        got = step(x, make(value), y)
        assert got.item() == pytest.approx(want.item()), value


def test_text_keys_and_numbers_share_no_graph_and_end_none():
    _, step, x, y = made(Model())
    for value in (1, True, 1.0, {1: 0}, {"1": 0}):
        for _ in range(3):
            step(x, value, y)

    assert (step.captures, step.reason) == (5, None)


def test_a_number_that_is_none_has_one_graph():
    _, step, x, y = made(Model())
    for _ in range(6):
        step(x, float("nan"), y)

    assert (step.captures, step.reason) == (1, None)


class Batch:
    x: Tensor


class OfBatches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, batch: Batch) -> Tensor:
        return self.layer(batch.x)


def test_an_object_may_get_other_tensors():
    theirs, step, _, y = made(OfBatches())
    batch = Batch()
    with pytest.warns(UserWarning, match=r"reads .*\.x, a tensor that is no argument"):
        for x in torch.rand(6, 3, 4).npu():
            batch.x = x
            want = F.mse_loss(theirs(batch), y).item()
            assert step(batch, y).item() == pytest.approx(want)


SHIFTS = {"global": torch.zeros(4)}
BY_GLOBAL, BY_CLOSURE = "global", "closure"


@pytest.mark.parametrize("where", [BY_GLOBAL, BY_CLOSURE])
def test_a_tensor_that_nothing_compares_is_read_at_each_step(where: str, monkeypatch):
    own = torch.zeros(4, device="npu")
    monkeypatch.setitem(SHIFTS, "global", own)

    def loss_fn(x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(x + (SHIFTS["global"] if where == BY_GLOBAL else own), y)

    theirs, step, x, y = made(nn.Linear(4, 4), loss_fn)
    with pytest.warns(UserWarning, match="reads .*, a tensor that is no argument"):
        for i in range(6):
            own = SHIFTS["global"] = torch.full((4,), float(i), device="npu")
            want = loss_fn(theirs(x), y).item()
            assert step(x, y).item() == pytest.approx(want)
