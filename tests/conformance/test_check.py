"""The conformance run sees what is broken, and judges by what was compared.

On operators that were broken on purpose, runs written by hand and calls made by hand.
"""

import json
import sys

import pytest
import torch
from torch.testing._internal.opinfo.core import SampleInput

from tests.conformance import run
from tests.conformance.calls import CPU, Call
from tests.conformance.check import judge, read_list
from tests.conformance.compare import agrees_with_itself, is_a_tie, is_nearer
from tests.conformance.plants import PLANTS
from tests.search.children import run_module

GOOD = {"name": "good", "dtypes": {"float32": {"fwd": {"pass": 2}, "errors": []}}}
BAD = {
    "name": "bad.x",
    "dtypes": {
        "int64": {"fwd": {"pass": 1}, "out": {"fail": 1}, "errors": ["[out] no"]}
    },
}
GONE = {"name": "gone", "dtypes": {}, "crash": "worker died"}
# Of each nothing was compared: no samples, skipped ones, ones that fail alike.
EMPTY = [
    {"name": "none", "dtypes": {}},
    *(
        {"name": outcome, "dtypes": {"int64": {"fwd": {outcome: n}, "errors": []}}}
        for outcome, n in (("pass", 0), ("skip", 3), ("raises", 3))
    ),
]
BAD_AND_GONE = [("bad.x int64 out", "[out] no"), ("gone all crash", "worker died")]
EXCUSED = "# why\nbad.* int64 out = x\ngone .* = y\n"
# Operators, what else the judge is told, and its complaints; checked and failed ones.
RUNS = [
    ([GOOD], {"full": True}, [], (1, 0)),
    ([GOOD, BAD, GONE], {}, BAD_AND_GONE, (2, 2)),
    ([], {}, ["nothing was checked"], (0, 0)),
    *(
        row
        for op in EMPTY
        for row in (
            ([GOOD, op], {}, [f"nothing was compared: {op['name']}"], (1, 1)),
            # What cannot be checked is listed, and not counted.
            ([GOOD, op], {"full": True, "unchecked": f"{op['name']} = x"}, [], (1, 0)),
        )
    ),
    (
        [GOOD],
        {"full": True, "unchecked": "good = x"},
        ["unchecked.txt lists good: remove it"],
        (1, 0),
    ),
    # An entry for what is gone is stale in a full run only.
    (
        [GOOD],
        {"full": True, "unchecked": "gone = x"},
        ["unchecked.txt lists gone: remove it"],
        (1, 0),
    ),
    ([GOOD], {"unchecked": "gone = x"}, [], (1, 0)),
    (
        [GOOD],
        {"full": True, "expected": 2},
        ["1 operators checked, expected 2"],
        (1, 0),
    ),
    ([GOOD], {"expected": 2}, [], (1, 0)),
    (
        [GOOD, BAD, GONE],
        {"impossible": f"{EXCUSED}good .* = z"},
        ["excuses nothing, remove it: good .*"],
        (2, 0),
    ),
    ([GOOD], {"impossible": "other .* = x"}, [], (1, 0)),
    (
        [GOOD],
        {"full": True, "impossible": "other .* = x"},
        ["excuses nothing, remove it: other .*"],
        (1, 0),
    ),
]


@pytest.mark.parametrize(("ops", "told", "complaints", "counts"), RUNS)
def test_a_run_is_judged_by_what_was_compared_and_by_the_lists(
    ops, told, complaints, counts
):
    verdict = judge(
        {"full": told.get("full", False), "ops": ops},
        read_list(told.get("impossible", "")),
        read_list(told.get("unchecked", "")),
        told.get("expected", 1),
    )

    assert verdict.complaints == [
        c if isinstance(c, tuple) else (c, "") for c in complaints
    ]
    assert (verdict.checked, verdict.failed) == counts
    nothing = [op["name"] for op in ops if op in EMPTY]
    assert verdict.nothing_to_check == nothing


def test_an_entry_needs_a_reason():
    with pytest.raises(ValueError, match="no reason"):
        read_list("bad .* =\n")


def is_reference(function, x: torch.Tensor) -> bool:
    call = Call(function, SampleInput(x))
    return agrees_with_itself(call, call.make(CPU))


def test_a_result_that_repeats_is_a_reference():
    assert is_reference(torch.exp, torch.ones(5, 5))
    assert is_reference(torch.exp, torch.ones(5, 1).expand(5, 5))


def test_a_random_result_is_none():
    turns = iter(range(100))

    assert not is_reference(lambda x: x + next(turns), torch.ones(5))


def test_a_result_of_memory_that_is_not_the_input_s_is_none():
    def reads_behind_the_end(x):
        return x.as_strided((25,), (1,)) if 0 not in x.stride() else -x.flatten()

    assert is_reference(reads_behind_the_end, torch.ones(5, 5))
    assert not is_reference(reads_behind_the_end, torch.ones(5, 1).expand(5, 5))


def first(x):
    return x.gather(1, (x == x.amax(1, keepdim=True)).byte().argmax(1, keepdim=True))


def last(x):
    return first(x.flip(1))


def either_will_do(of_cpu, of_device) -> bool:
    """Return whether either gradient will do, for rows of equal numbers."""
    x = torch.tensor([[3.0], [5.0]]).expand(2, 6).requires_grad_()
    call = Call(of_cpu, SampleInput(x), backward="")
    return is_a_tie(
        call, Call(of_device, SampleInput(x), backward="").make(CPU), call.make(CPU)
    )


def test_any_of_equal_numbers_may_have_the_gradient_of_a_selection():
    assert either_will_do(first, last)
    assert either_will_do(last, first)


def test_the_gradients_of_equal_numbers_have_a_sum():
    assert not either_will_do(
        first, lambda x: last(x) + (x - x.detach()).sum(1, keepdim=True)
    )


def test_the_result_of_a_selection_is_not_free():
    assert not either_will_do(first, lambda x: last(x) + 1)


def test_equal_numbers_have_gradients_of_their_own_elsewhere():
    weights = torch.arange(6.0)

    assert not either_will_do(lambda x: x * weights, lambda x: x * weights.flip(0) * 1)
    # Of the same values, and the same sum of gradients.
    assert not either_will_do(
        lambda x: (x * weights).sum(1), lambda x: (x * weights.flip(0)).sum(1)
    )


def of_half(x):
    """A sum that is rounded at each step."""
    total = torch.zeros_like(x[0])
    for row in x:
        total = total + row
    return total


def of_single(x):
    return x.float().sum(0).to(x.dtype)


def is_better(of_device, of_cpu, dtype: torch.dtype) -> bool:
    x = torch.linspace(0.1, 7, 600).reshape(200, 3).to(dtype).requires_grad_()
    call = Call(of_cpu, SampleInput(x), backward="")
    device = Call(of_device, SampleInput(x), backward="")
    return is_nearer(call, device.make(CPU), call.make(CPU))


def test_a_result_of_half_precision_may_be_better_than_cpu_s():
    for dtype in (torch.float16, torch.bfloat16):
        assert is_better(of_single, of_half, dtype)
        assert not is_better(of_half, of_single, dtype)
        assert not is_better(lambda x: of_single(x) * 1.5, of_half, dtype)
    assert not is_better(of_single, of_half, torch.float32)


@pytest.mark.nightly
@pytest.mark.timeout(960)
def test_a_broken_operator_fails_and_one_left_alone_passes():
    done = run_module("tests.conformance.plants")
    assert done.returncode == 0, done.stderr

    wrong = {
        name: (status, said)
        for name, (status, said) in json.loads(done.stdout.splitlines()[-1]).items()
        if PLANTS[name].told not in said
        or status != (name != "nothing")
        or (name != "nothing" and "failed: 1, " not in said)
    }
    assert wrong == {}


def test_what_is_missing_in_ci_is_an_error(capsys, monkeypatch):
    monkeypatch.setenv("CI", "1")
    monkeypatch.setattr(run, "NEEDED", ("no_such_module",))
    monkeypatch.setattr(sys, "argv", ["run.py", "--ops", "^digamma$"])

    assert run.main() == 2
    assert "not installed: no_such_module" in capsys.readouterr().err
