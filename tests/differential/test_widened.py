"""Each entry of csrc/ops/widened.cpp's table is a difference from cpu, and known."""

import torch

from tests.differential.check import against
from tests.differential.known import explains
from tests.differential.machine import DTYPES, run
from tests.differential.widened import SOURCE, TABLE, TOLERANCE, read, wider

NAMES = {dtype: name for name, dtype in DTYPES.items()}
VIDEO = "[2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None"
LABELS = "torch.tensor([[1, 0, -1, 2]] * 3, device=D)"
# The shape of t0, and the arguments: where they are not (3, 3) and t0 alone.
CALLS = {
    "histc": ((3, 3), "t0, 4"),
    "avg_pool3d": ((1, 2, 4, 4, 4), "t0, [2, 2, 2]"),
    "avg_pool3d_backward": (
        (1, 2, 2, 2, 2),
        f"t0, t0.new_ones(1, 2, 4, 4, 4), {VIDEO}",
    ),
    "_upsample_bilinear2d_aa": ((1, 2, 6, 6), "t0, [3, 3], False"),
    "_upsample_bilinear2d_aa_backward": (
        (1, 2, 3, 3),
        "t0, [3, 3], [1, 2, 6, 6], False",
    ),
    "multi_margin_loss": ((3, 4), "t0, torch.tensor([1, 0, 2], device=D)"),
    "multi_margin_loss_backward": (
        (3, 4),
        "t0[0, 0], t0, torch.tensor([1, 0, 2], device=D), 1, 1",
    ),
    "multilabel_margin_loss_forward": ((3, 4), f"t0, {LABELS}, 1"),
    "multilabel_margin_loss_backward": (
        (3, 4),
        f"t0[0, 0], t0, {LABELS}, 1, t0.new_zeros(3, 4)",
    ),
    "polygamma": ((3, 3), "3, t0"),
    "round.decimals": ((3, 3), "t0, decimals=1"),
    "_fft_c2c": ((4, 4), "t0, [0], 0, True"),
    "_fft_c2r": ((4, 4), "t0, [0], 0, 4"),
    "div.Tensor": ((3, 3), "t0, t0 + 1"),
    "lerp.Scalar": ((3, 3), "t0, t0 + 1, 0.25"),
    "lerp.Tensor": ((3, 3), "t0, t0 + 1, t0"),
    "logaddexp": ((3, 3), "t0, t0 + 1"),
    "pow.Scalar": ((3, 3), "2, t0"),
    "pow.Tensor_Scalar": ((3, 3), "t0, 0.5"),
    "pow.Tensor_Tensor": ((3, 3), "t0, t0"),
    "prod.dim_int": ((3, 3), "t0, 0"),
    "sum.dim_IntList": ((3, 3), "t0, [0]"),
}


def program(op: str, dtype: torch.dtype, *, wide: bool = False) -> list[str]:
    """Return a call of an operator as a program; wide: in the wider dtype."""
    name = op.removeprefix("aten::")
    shape, arguments = CALLS.get(name, ((3, 3), "t0"))
    overload = name if "." in name else f"{name}.default"
    steps = [
        f"t0 = data({shape}, {NAMES[dtype]}, 3)",
        f"t1 = torch.ops.aten.{overload}({arguments})",
    ]
    if wide:
        steps.insert(1, f"t0 = t0.to({NAMES[wider(dtype)]})")
    return steps


def result(steps: list[str], device: str) -> torch.Tensor:
    (_, first), *_others = run(steps, device).values["t1"].tensors
    return first


def everything(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def wrong_with(op: str, dtype: torch.dtype) -> str:
    """Return what is not so of an entry: that cpu refuses it, and npu computes it."""
    steps = program(op, dtype)
    found = against(steps, run(steps, "cpu"))
    if found is None:
        return "cpu computes this, so that the table need not have it"
    if found.kind != "error only on cpu" or explains(found) != "dtypes_of_cuda":
        return str(found)
    got = result(steps, "npu")
    expected = result(program(op, dtype, wide=True), "cpu").to(got.dtype)
    tolerance = TOLERANCE.get(dtype, 0)
    try:
        torch.testing.assert_close(
            everything(got),
            everything(expected),
            rtol=tolerance,
            atol=tolerance,
            equal_nan=True,
        )
    except AssertionError as error:
        return str(error)
    return ""


def test_entries_are_refused_by_cpu_and_computed_by_npu():
    found = {entry: wrong_with(*entry) for entry in sorted(TABLE, key=str)}

    assert {entry: wrong for entry, wrong in found.items() if wrong} == {}


def test_every_row_of_the_table_is_read():
    text = SOURCE.read_text()

    assert len({op for op, _ in TABLE}) == text.count('"aten::')
    assert {("aten::trace", torch.bool), ("aten::trace", torch.complex32)} <= TABLE
    assert read(text.replace("aten::sin", "aten::other")) != TABLE


KNOWN_STEPS = (
    "t1 = torch.sum(t0)",  # is sum.dim_IntList
    "t1 = t0 ** 0.5",
    "t1 = torch.fft.fft(t0)",
    "in_thread(0, 't1 = t0.sin()')",
    "t1 = at_once(t0, 'x.sin()', 'x.cos()')",
    "with on(1, 'event'): t1 = torch.sin(t0)",
    "t0.requires_grad_().sgn().backward(t0.detach())",
)
REFUSED_STEPS = ("t0.sin_()", "t1 = torch.sin(t0, out=t0)", "t1 = t0.mean()")


def test_what_comes_to_an_entry_is_known_however_it_is_spelt_and_nothing_else_is():
    told = {}
    for step in (*KNOWN_STEPS, *REFUSED_STEPS):
        steps = ["t0 = data((4,), complex32, 3)", step]
        found = against(steps, run(steps, "cpu"))
        told[step] = found and explains(found)

    known = dict.fromkeys(KNOWN_STEPS, "dtypes_of_cuda")
    assert told == known | dict.fromkeys(REFUSED_STEPS)
